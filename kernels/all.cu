// Defaults of every kernel family, compiled for every architecture we name, so that a family that
// no longer compiles, or spills registers, is seen without a GPU.
//
// With AC_ONE_OF_EACH, one plan of each family, and of gemv one of every type of codes; the others
// are at the end.
#include "kernels/advance.cuh"
#include "kernels/attention.cuh"
#include "kernels/draw.cuh"
#include "kernels/each_row.cuh"
#include "kernels/elementwise.cuh"
#include "kernels/embedding.cuh"
#include "kernels/fallback.cuh"
#include "kernels/gemm.cuh"
#include "kernels/gemv.cuh"
#include "kernels/layers.cuh"
#include "kernels/mask_logits.cuh"
#include "kernels/measure.cuh"
#include "kernels/mma_gemm.cuh"
#include "kernels/mma_gemv.cuh"
#include "kernels/norm.cuh"
#include "kernels/prefill_attention.cuh"
#include "kernels/qkv_rope.cuh"
#include "kernels/random.cuh"
#include "kernels/reduction.cuh"
#include "kernels/rope_append.cuh"
#include "kernels/sampling.cuh"
#include "kernels/softmax.cuh"
#include "kernels/tma_gemm.cuh"

namespace ac::kernels {

constexpr GemvOp qkv{.norm = true, .bias = true, .matrices = 3};
constexpr GemvOp projection{.residual = true};
constexpr GemvOp gate_up{.norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvOp head{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::f32, .norm = true, .argmax = true};

constexpr Format fp8_block{.codes = Codes::e4m3, .rows = 128, .columns = 128};
constexpr Format int8_rows{.codes = Codes::u8};
constexpr Format int4_groups{.codes = Codes::u4, .scale = ScaleType::bf16, .columns = 128};
constexpr Format int4_zeros{
    .codes = Codes::u4, .scale = ScaleType::f16, .zeros = true, .columns = 32};
constexpr Format nvfp4{
    .codes = Codes::e2m1, .scale = ScaleType::e4m3, .columns = 16, .global = true};
constexpr Format mxfp4{.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32};
// Q4_K, Q6_K and Q5_K of GGUF files.
constexpr Format q4_k{
    .codes = Codes::u4, .scale = ScaleType::i8, .columns = 32, .outer = 256, .minima = true};
constexpr Format q6_k{.codes = Codes::u6, .scale = ScaleType::i8, .columns = 16, .outer = 256};
constexpr Format q5_k{
    .codes = Codes::u5, .scale = ScaleType::i8, .columns = 32, .outer = 256, .minima = true};
constexpr GemvOp fp8_qkv{.weight = Type::bf16,
                         .x = Type::bf16,
                         .y = Type::bf16,
                         .norm = true,
                         .matrices = 3,
                         .format = fp8_block};
constexpr GemvOp fp8_projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true, .format = fp8_block};

constexpr GemvOp int4_gate_up{.weight = Type::bf16,
                              .x = Type::bf16,
                              .y = Type::bf16,
                              .norm = true,
                              .pair = Pair::swiglu,
                              .matrices = 2,
                              .format = int4_groups};
constexpr GemvOp int4_projection{.residual = true, .format = int4_zeros};
constexpr GemvOp int8_projection{.bias = true, .format = int8_rows};

constexpr GemvPlan registers{};
constexpr GemvPlan registers_roomy{.resident = 512};
constexpr GemvPlan registers_of_codes{.depth = 4, .resident = 512};
constexpr GemvPlan registers_pair{.rows = 2, .depth = 4};
constexpr GemvPlan pair_of_codes{.rows = 2, .depth = 4, .resident = 512};
// With two scales a vector there are registers for less ahead.
constexpr GemvPlan pair_of_fp4{.rows = 2, .depth = 2, .resident = 512};
constexpr GemvPlan async_copy{.ring = Ring::async_copy};
constexpr GemvPlan async_codes{.ring = Ring::async_copy, .resident = 512};
constexpr GemvPlan any_shape{.depth = 1, .ring = Ring::none};
AC_GEMV_KERNEL(gemv_qkv, qkv, registers_roomy)
AC_GEMV_KERNEL(gemv_fp8_projection, fp8_projection, async_copy)
AC_GEMV_KERNEL(gemv_int4_any_shape, int4_projection, any_shape)
constexpr GemvOp listed_projection{.residual = true,
                                   .format = {.codes = Codes::u4,
                                              .scale = ScaleType::f16,
                                              .zeros = true,
                                              .columns = 128,
                                              .listed = true}};
AC_GEMV_KERNEL(gemv_int8_projection, int8_projection, async_codes)
constexpr GemvOp int4_bf16_projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true, .format = int4_zeros};
constexpr GemvOp nvfp4_gate_up{.weight = Type::bf16,
                               .x = Type::bf16,
                               .y = Type::bf16,
                               .norm = true,
                               .pair = Pair::swiglu,
                               .matrices = 2,
                               .format = nvfp4};
constexpr GemvOp nvfp4_projection{.residual = true, .format = nvfp4};
constexpr GemvOp mxfp4_projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true, .format = mxfp4};
AC_GEMV_KERNEL(gemv_nvfp4_any_shape, nvfp4_projection, any_shape)
AC_GEMV_KERNEL(gemv_mxfp4_projection, mxfp4_projection, async_codes)
constexpr GemvOp q4_k_gate_up{.weight = Type::bf16,
                              .x = Type::bf16,
                              .y = Type::bf16,
                              .norm = true,
                              .pair = Pair::swiglu,
                              .matrices = 2,
                              .format = q4_k};
constexpr GemvOp q5_k_projection{.residual = true, .format = q5_k};
constexpr GemvOp q6_k_projection{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true, .format = q6_k};
AC_GEMV_KERNEL(gemv_q5_k_projection, q5_k_projection, async_codes)
constexpr GemvPlan registers_of_planes{.depth = 2, .resident = 512};
AC_GEMV_KERNEL(gemv_q6_k_any_shape, q6_k_projection, any_shape)
constexpr MmaGemvPlan columns{};
constexpr MmaGemvPlan half_tiles{.rows = 8};
// With planes and minima there are too few registers for two blocks.
constexpr MmaGemvPlan one_block{.resident = 1};
constexpr GemvOp bf16_gate_up{.weight = Type::bf16,
                              .x = Type::bf16,
                              .y = Type::bf16,
                              .norm = true,
                              .pair = Pair::swiglu,
                              .matrices = 2};
constexpr MmaGemvPlan quarter_tiles{.rows = 4, .depth = 4};
AC_MMA_GEMV_KERNEL(mma_gemv_projection, projection, quarter_tiles)
// Several tokens at once.
constexpr GemvPlan eight_tokens{
    .rows = 4, .depth = 4, .ring = Ring::async_copy, .resident = 256, .tokens = 8};
constexpr GemvPlan pair_of_tokens{.rows = 2, .depth = 4, .resident = 256, .tokens = 2};
constexpr GemvPlan any_tokens{.depth = 1, .ring = Ring::none, .resident = 512, .tokens = 8};
AC_GEMV_KERNEL(gemv_projection_any_tokens, projection, any_tokens)
constexpr MmaGemvPlan columns_of_tokens{.resident = 1, .tokens = 8},
    half_tiles_of_tokens{.rows = 8, .resident = 1, .tokens = 8};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr GemvPlan bulk_copy{.depth = 4, .chunks = 4, .ring = Ring::bulk_copy};
constexpr GemvPlan bulk_pair{
    .rows = 2, .depth = 4, .chunks = 2, .ring = Ring::bulk_copy, .resident = 256};
AC_GEMV_KERNEL(gemv_projection_bulk_copy, projection, bulk_copy)
AC_GEMV_KERNEL(gemv_int4_bulk_copy, int4_gate_up, bulk_pair)
AC_LAYERS_KERNEL(layers_qwen3, (LayersOp{.head_norms = true}), LayersPlan{})
AC_LAYERS_KERNEL(
    layers_qwen3_int4,
    (LayersOp{
        .hidden = 2560, .heads = 32, .inter = 9728, .head_norms = true, .format = int4_groups}),
    (LayersPlan{.parts_o = 2, .parts_down = 2, .stages = 7, .warps = 10}))
#endif

constexpr AttentionPlan mma{};
constexpr AttentionPlan mma_wide{.threads = 128, .resident = 256};
constexpr AttentionPlan scalar{.tile = Tile::scalar};
AC_ATTENTION_KERNEL(attention_64, (AttentionOp{.head_dim = 64, .rotary = 64}), mma)
AC_ATTENTION_KERNEL(attention_64_fp8, (AttentionOp{.head_dim = 64, .rotary = 64, .fp8 = true}), mma)
AC_ATTENTION_KERNEL(attention_any, (AttentionOp{.type = Type::f32, .head_dim = 80, .rotary = 32}),
                    scalar)

// As rows of several sequences run them.
#pragma push_macro("AC_KERNEL_ENTRY")
#undef AC_KERNEL_ENTRY
#define AC_KERNEL_ENTRY AC_ENTRY_OF_ROWS
#define AC_ROWS 8
AC_ATTENTION_KERNEL(attention_128_rows, (AttentionOp{.type = Type::bf16, .qk_norm = true}), mma)
AC_ATTENTION_KERNEL(attention_any_rows,
                    (AttentionOp{.type = Type::f32, .head_dim = 80, .rotary = 32}), scalar)
#undef AC_ROWS
#pragma pop_macro("AC_KERNEL_ENTRY")

constexpr GemmOp gemm_projection{.residual = true};
constexpr GemmOp gemm_gate_up{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .pair = Pair::swiglu, .matrices = 2};
constexpr GemmOp gemm_f32{
    .weight = Type::f32, .x = Type::f32, .y = Type::f32, .bias = true, .matrices = 3};
constexpr GemmPlan gemm_plan{};
AC_GEMM_KERNEL(gemm_projection_any_shape, gemm_projection, gemm_plan)

constexpr MmaGemmPlan mma_gemm_plan{};
constexpr MmaGemmPlan mma_gemm_large{.tile_n = 256};
constexpr MmaGemmPlan mma_gemm_split{
    .tile_m = 64, .tile_n = 64, .warp_m = 32, .warp_n = 32, .stages = 4, .split = 4};
AC_MMA_GEMM_KERNEL(mma_gemm_projection, gemm_projection, mma_gemm_plan)

constexpr PrefillAttentionPlan prefill_mma{};
constexpr PrefillAttentionPlan prefill_mma_tall{.query_tile = 128};
constexpr PrefillAttentionPlan prefill_mma_wide{
    .key_tile = 32, .keep_queries = false, .resident = 1};
constexpr PrefillAttentionPlan prefill_split{
    .query_tile = 32, .key_tile = 128, .warps = 8, .resident = 1, .splits = 4};
constexpr PrefillAttentionPlan prefill_scalar{
    .tile = Tile::scalar, .query_tile = 16, .key_tile = 32, .stages = 1};
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_80, (PrefillAttentionOp{.head_dim = 80, .group = 1}),
                            prefill_mma)
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr PrefillAttentionPlan prefill_groups{.tile = Tile::wgmma,
                                              .query_tile = 128,
                                              .key_tile = 128,
                                              .warps = 8,
                                              .keep_queries = false,
                                              .resident = 1};
constexpr PrefillAttentionPlan prefill_groups_kept{
    .tile = Tile::wgmma, .query_tile = 128, .warps = 8, .stages = 3, .resident = 1};
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_groups_kept,
                            (PrefillAttentionOp{.type = Type::bf16, .group = 2}),
                            prefill_groups_kept)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_groups_64, (PrefillAttentionOp{.head_dim = 64}),
                            prefill_groups)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_groups_128,
                            (PrefillAttentionOp{.type = Type::bf16, .group = 2}), prefill_groups)

constexpr GemmOp tma_pair{.pair = Pair::swiglu, .matrices = 2};
constexpr TmaGemmPlan tma_large{};
constexpr TmaGemmPlan tma_short{.tile_n = 64, .stages = 8, .cluster_m = 1, .cluster_n = 2};
constexpr TmaGemmPlan tma_split{.tile_n = 64, .stages = 6, .cluster_m = 1, .cluster_k = 4};
AC_TMA_GEMM_KERNEL(tma_gemm_qkv, (GemmOp{.bias = true, .matrices = 3}), tma_large)
AC_TMA_GEMM_KERNEL(tma_gemm_projection, gemm_projection, tma_large)
AC_TMA_GEMM_KERNEL(tma_gemm_gate_up, tma_pair, tma_large)
AC_TMA_GEMM_KERNEL(tma_gemm_short, gemm_projection, tma_short)
AC_TMA_GEMM_KERNEL(tma_gemm_split, gemm_projection, tma_split)

constexpr GemmOp tma_fp8{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .matrices = 3, .format = fp8_block};
constexpr GemmOp tma_int4{.weight = Type::bf16,
                          .x = Type::bf16,
                          .y = Type::bf16,
                          .residual = true,
                          .format = int4_groups};
constexpr GemmOp tma_int4_pair{.pair = Pair::swiglu, .matrices = 2, .format = int4_zeros};
constexpr GemmOp tma_int8{.bias = true, .format = int8_rows};
constexpr GemmOp tma_nvfp4{.weight = Type::bf16,
                           .x = Type::bf16,
                           .y = Type::bf16,
                           .pair = Pair::swiglu,
                           .matrices = 2,
                           .format = nvfp4};
constexpr GemmOp tma_mxfp4{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true, .format = mxfp4};
constexpr TmaGemmPlan tma_codes{.stages = 3, .cluster_m = 1, .cluster_n = 2};
constexpr TmaGemmPlan tma_codes_square{.tile_n = 128, .cluster_m = 1};
AC_TMA_GEMM_KERNEL(tma_gemm_fp8_qkv, tma_fp8, tma_codes)
AC_TMA_GEMM_KERNEL(tma_gemm_int4_projection, tma_int4, tma_codes)
AC_TMA_GEMM_KERNEL(tma_gemm_int4_gate_up, tma_int4_pair, tma_codes)
AC_TMA_GEMM_KERNEL(tma_gemm_int8_projection, tma_int8, tma_codes)
AC_TMA_GEMM_KERNEL(tma_gemm_nvfp4_gate_up, tma_nvfp4, tma_codes)
AC_TMA_GEMM_KERNEL(tma_gemm_mxfp4_projection, tma_mxfp4, tma_codes)
constexpr GemmOp tma_q4_k{.weight = Type::bf16,
                          .x = Type::bf16,
                          .y = Type::bf16,
                          .pair = Pair::swiglu,
                          .matrices = 2,
                          .format = q4_k};
constexpr GemmOp tma_q6_k{.residual = true, .format = q6_k};
AC_TMA_GEMM_KERNEL(tma_gemm_q4_k_gate_up, tma_q4_k, tma_codes)
AC_TMA_GEMM_KERNEL(tma_gemm_q6_k_projection, tma_q6_k, tma_codes_square)
AC_TMA_GEMM_KERNEL(tma_gemm_int4_square, tma_int4, tma_codes_square)
AC_TMA_GEMM_KERNEL(tma_gemm_int4_split, tma_int4, tma_split)

constexpr QkvRopeOp qkv_qwen3{
    .product = {.weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .matrices = 3},
    .append = {.type = Type::bf16, .qk_norm = true}};
constexpr QkvRopeOp qkv_qwen2{.product = {.bias = true, .matrices = 3},
                              .append = {.head_dim = 64, .rotary = 64}};
constexpr QkvRopeOp qkv_one_matrix{.append = {.rotary = 64, .interleaved = true}};
constexpr TmaGemmPlan qkv_square{.tile_n = 128};
constexpr TmaGemmPlan qkv_small{.tile_m = 64, .tile_n = 128};
AC_QKV_ROPE_KERNEL(qkv_rope_qwen3, qkv_qwen3, tma_large)
AC_QKV_ROPE_KERNEL(qkv_rope_qwen3_square, qkv_qwen3, qkv_square)
AC_QKV_ROPE_KERNEL(qkv_rope_qwen3_small, qkv_qwen3, qkv_small)
AC_QKV_ROPE_KERNEL(qkv_rope_qwen2, qkv_qwen2, tma_large)
AC_QKV_ROPE_KERNEL(qkv_rope_qwen2_square, qkv_qwen2, qkv_square)
AC_QKV_ROPE_KERNEL(qkv_rope_qwen2_small, qkv_qwen2, qkv_small)
AC_QKV_ROPE_KERNEL(qkv_rope_one_matrix, qkv_one_matrix, tma_large)
#endif
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_any,
                            (PrefillAttentionOp{.type = Type::f32, .head_dim = 100}),
                            prefill_scalar)

struct GatedSilu {
  AC_DEVICE float operator()(float gate, float up) const { return math::mul(math::silu(gate), up); }
};
struct ScaledGeluPlusBias {
  AC_DEVICE float operator()(float x, float scale, float bias, float residual) const {
    return math::add(residual, math::gelu_erf(math::add(math::mul(x, scale), bias)));
  }
};
struct Square {
  AC_DEVICE float operator()(float x) const { return x * x; }
};
constexpr ElementwisePlan lean{.resident = 512};
AC_ELEMENTWISE_KERNEL(elementwise_gated_silu, (ElementwiseOp{.inputs = 2}), (ElementwisePlan{}),
                      GatedSilu)
AC_REDUCTION_KERNEL(reduction_max, (ReductionOp{.fold = Fold::max}),
                    (ReductionPlan{.team = Team::warp}), Identity)
AC_SOFTMAX_KERNEL(softmax_online, (SoftmaxOp{}), (SoftmaxPlan{}))
AC_NORM_KERNEL(norm_rms, (NormOp{}), (NormPlan{}))
AC_NORM_KERNEL(norm_layer_welford, (NormOp{.norm = Norm::layer, .x = Type::bf16}),
               (NormPlan{.variance = Variance::welford}))
AC_EMBEDDING_KERNEL(embedding_rows, (EmbeddingOp{}), (EmbeddingPlan{}))
AC_FALLBACK_KERNEL(fallback_add, (FallbackOp{.kind = FallbackKind::add,
                                             .in = {Element::f16, Element::f16},
                                             .out = Element::f16,
                                             .operands = 2,
                                             .rank = 4}))
AC_FALLBACK_KERNEL(fallback_scaled_product,
                   (FallbackOp{.kind = FallbackKind::scaled_product,
                               .in = {Element::bf16, Element::e4m3, Element::f32},
                               .out = Element::bf16,
                               .operands = 3,
                               .rank = 2,
                               .inner = 1,
                               .format = fp8_block}))
AC_FALLBACK_KERNEL(fallback_mxfp4_product,
                   (FallbackOp{.kind = FallbackKind::scaled_product,
                               .in = {Element::bf16, Element::u8, Element::e8m0},
                               .out = Element::bf16,
                               .operands = 3,
                               .rank = 2,
                               .inner = 1,
                               .format = mxfp4}))
AC_FALLBACK_KERNEL(fallback_rope,
                   (FallbackOp{.kind = FallbackKind::rope,
                               .in = {Element::f16, Element::f16, Element::positions, Element::f32},
                               .out = Element::f16,
                               .operands = 4,
                               .rank = 3,
                               .inner = 1}))
AC_ROPE_APPEND_KERNEL(rope_append_partial,
                      (RopeAppendOp{
                          .type = Type::f32, .head_dim = 80, .rotary = 32, .interleaved = true}),
                      (RopeAppendPlan{}))
AC_SAMPLING_KERNEL(sampling_greedy, (SamplingOp{}), (SamplingPlan{}))
AC_MASK_LOGITS_KERNEL(mask_logits_f32, (MaskLogitsOp{}), (MaskLogitsPlan{}))
AC_DRAW_KERNEL(draw_top_k, (DrawOp{Type::f16, DrawPass::top_k}), (DrawPlan{}))
AC_ADVANCE_KERNEL(advance_narrow, (AdvanceOp{}))
AC_RANDOM_KERNELS

AC_MEASURE_KERNELS

#ifndef AC_ONE_OF_EACH
AC_GEMV_KERNEL(gemv_projection, projection, registers)
AC_GEMV_KERNEL(gemv_fp8_qkv, fp8_qkv, registers_of_codes)
AC_GEMV_KERNEL(gemv_fp8_any_shape, fp8_projection, any_shape)
AC_GEMV_KERNEL(gemv_int4_gate_up, int4_gate_up, pair_of_codes)
AC_GEMV_KERNEL(gemv_int4_projection, int4_projection, registers_of_codes)
AC_GEMV_KERNEL(gemv_int4_async_copy, int4_projection, async_codes)
AC_GEMV_KERNEL(gemv_listed_any_shape, listed_projection, any_shape)
AC_GEMV_KERNEL(gemv_nvfp4_gate_up, nvfp4_gate_up, pair_of_fp4)
AC_GEMV_KERNEL(gemv_q4_k_gate_up, q4_k_gate_up, pair_of_codes)
AC_GEMV_KERNEL(gemv_q4_k_any_shape, q4_k_gate_up,
               (GemvPlan{.rows = 2, .depth = 1, .ring = Ring::none}))
AC_GEMV_KERNEL(gemv_q6_k_projection, q6_k_projection, registers_of_planes)
AC_MMA_GEMV_KERNEL(mma_gemv_int4_gate_up, int4_gate_up, columns)
AC_MMA_GEMV_KERNEL(mma_gemv_int4_projection, int4_bf16_projection, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_int4_f16_projection, int4_projection, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_fp8_projection, fp8_projection, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_fp8_qkv, fp8_qkv, columns)
AC_MMA_GEMV_KERNEL(mma_gemv_nvfp4_gate_up, nvfp4_gate_up, columns)
AC_MMA_GEMV_KERNEL(mma_gemv_nvfp4_projection, nvfp4_projection, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_mxfp4_projection, mxfp4_projection, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_q4_k_gate_up, q4_k_gate_up, columns)
AC_MMA_GEMV_KERNEL(mma_gemv_q5_k_projection, q5_k_projection, one_block)
AC_MMA_GEMV_KERNEL(mma_gemv_q6_k_projection, q6_k_projection, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_gate_up, bf16_gate_up, half_tiles)
AC_MMA_GEMV_KERNEL(mma_gemv_int4_quarter_tiles, int4_bf16_projection, quarter_tiles)
AC_GEMV_KERNEL(gemv_gate_up, gate_up, registers_pair)
AC_GEMV_KERNEL(gemv_head, head, registers)
AC_GEMV_KERNEL(gemv_projection_async_copy, projection, async_copy)
AC_GEMV_KERNEL(gemv_projection_any_shape, projection, any_shape)
AC_GEMV_KERNEL(gemv_qkv_eight_tokens, qkv, eight_tokens)
AC_GEMV_KERNEL(gemv_projection_eight_tokens, projection, eight_tokens)
AC_GEMV_KERNEL(gemv_gate_up_two_tokens, gate_up, pair_of_tokens)
AC_GEMV_KERNEL(gemv_int4_gate_up_two_tokens, int4_gate_up, pair_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_int4_eight_tokens, int4_gate_up, columns_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_int4_projection_tokens, int4_bf16_projection, half_tiles_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_fp8_eight_tokens, fp8_qkv, columns_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_mxfp4_eight_tokens, mxfp4_projection, columns_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_q4_k_eight_tokens, q4_k_gate_up, columns_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_gate_up_eight_tokens, bf16_gate_up, half_tiles_of_tokens)
AC_MMA_GEMV_KERNEL(mma_gemv_projection_eight_tokens, projection, half_tiles_of_tokens)
AC_ATTENTION_KERNEL(attention_128, (AttentionOp{.type = Type::bf16, .qk_norm = true}), mma)
AC_ATTENTION_KERNEL(attention_256, (AttentionOp{.head_dim = 256, .rotary = 256}), mma_wide)
AC_ATTENTION_KERNEL(attention_128_fp8,
                    (AttentionOp{.type = Type::bf16, .qk_norm = true, .fp8 = true}), mma)
AC_ATTENTION_KERNEL(attention_any_fp8,
                    (AttentionOp{.type = Type::f32, .head_dim = 80, .rotary = 32, .fp8 = true}),
                    scalar)
AC_GEMM_KERNEL(gemm_gate_up_any_shape, gemm_gate_up, gemm_plan)
AC_GEMM_KERNEL(gemm_qkv_any_shape, gemm_f32, gemm_plan)
AC_MMA_GEMM_KERNEL(mma_gemm_gate_up, gemm_gate_up, mma_gemm_plan)
AC_MMA_GEMM_KERNEL(mma_gemm_qkv, (GemmOp{.bias = true, .matrices = 3}), mma_gemm_large)
AC_MMA_GEMM_KERNEL(mma_gemm_projection_split, gemm_projection, mma_gemm_split)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_64, (PrefillAttentionOp{.head_dim = 64}),
                            prefill_mma_tall)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_96, (PrefillAttentionOp{.head_dim = 96, .group = 1}),
                            prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_128,
                            (PrefillAttentionOp{.type = Type::bf16, .group = 2}), prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_128_fp8,
                            (PrefillAttentionOp{.type = Type::bf16, .group = 2, .fp8 = true}),
                            prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_256, (PrefillAttentionOp{.head_dim = 256}),
                            prefill_mma_wide)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_split,
                            (PrefillAttentionOp{.type = Type::bf16, .group = 2}), prefill_split)
AC_ELEMENTWISE_KERNEL(elementwise_four, (ElementwiseOp{.out = Type::f32, .inputs = 4}), lean,
                      ScaledGeluPlusBias)
AC_REDUCTION_KERNEL(reduction_mean_square, (ReductionOp{.y = Type::f32, .fold = Fold::mean}),
                    (ReductionPlan{}), Square)
AC_SOFTMAX_KERNEL(softmax_warp, (SoftmaxOp{.x = Type::f32}),
                  (SoftmaxPlan{.team = Team::warp,
                               .passes = SoftmaxPasses::two,
                               .keep = Keep::registers,
                               .kept = 4,
                               .resident = 512}))
AC_NORM_KERNEL(norm_rms_residual, (NormOp{.residual = true}),
               (NormPlan{.team = Team::warp, .keep = Keep::reread, .kept = 1}))
AC_NORM_KERNEL(norm_layer, (NormOp{.norm = Norm::layer, .bias = true}),
               (NormPlan{.keep = Keep::shared, .kept = 1}))
AC_FALLBACK_KERNEL(fallback_int4_product,
                   (FallbackOp{
                       .kind = FallbackKind::scaled_product,
                       .in = {Element::f16, Element::u8, Element::f16, Element::u8, Element::f16},
                       .out = Element::f16,
                       .operands = 5,
                       .rank = 2,
                       .inner = 1,
                       .format = int4_zeros}))
AC_FALLBACK_KERNEL(fallback_nvfp4_product,
                   (FallbackOp{
                       .kind = FallbackKind::scaled_product,
                       .in = {Element::f16, Element::u8, Element::e4m3, Element::f32, Element::f16},
                       .out = Element::f16,
                       .operands = 5,
                       .rank = 2,
                       .inner = 1,
                       .format = nvfp4}))
AC_FALLBACK_KERNEL(fallback_q4_k_product,
                   (FallbackOp{.kind = FallbackKind::scaled_product,
                               .in = {Element::bf16, Element::u8, Element::i8, Element::f16},
                               .out = Element::bf16,
                               .operands = 4,
                               .rank = 2,
                               .inner = 1,
                               .format = q4_k}))
AC_FALLBACK_KERNEL(fallback_q6_k_product,
                   (FallbackOp{.kind = FallbackKind::scaled_product,
                               .in = {Element::f16, Element::u8, Element::i8, Element::f16,
                                      Element::u8, Element::f16},
                               .out = Element::f16,
                               .operands = 6,
                               .rank = 2,
                               .inner = 1,
                               .format = q6_k}))
AC_FALLBACK_KERNEL(fallback_positions_less, (FallbackOp{.kind = FallbackKind::less,
                                                        .in = {Element::positions, Element::i64},
                                                        .out = Element::boolean,
                                                        .operands = 2,
                                                        .rank = 0}))
AC_FALLBACK_KERNEL(
    fallback_amax,
    (FallbackOp{.kind = FallbackKind::amax, .in = {Element::i32}, .out = Element::i32, .inner = 2}))
AC_FALLBACK_KERNEL(fallback_argmax, (FallbackOp{.kind = FallbackKind::argmax,
                                                .in = {Element::bf16},
                                                .out = Element::i32,
                                                .rank = 0,
                                                .inner = 1}))
AC_FALLBACK_KERNEL(fallback_layer_norm,
                   (FallbackOp{.kind = FallbackKind::layer_norm,
                               .in = {Element::f16, Element::f16, Element::f16, Element::f16},
                               .out = Element::f16,
                               .operands = 4,
                               .rank = 8,
                               .inner = 1}))
AC_FALLBACK_KERNEL(fallback_product,
                   (FallbackOp{.kind = FallbackKind::product,
                               .in = {Element::bf16, Element::bf16, Element::bf16},
                               .out = Element::bf16,
                               .operands = 3,
                               .rank = 2,
                               .inner = 1}))
AC_FALLBACK_KERNEL(fallback_attend, (FallbackOp{.kind = FallbackKind::attend,
                                                .in = {Element::bf16, Element::bf16, Element::bf16,
                                                       Element::bf16, Element::bf16},
                                                .out = Element::bf16,
                                                .operands = 5,
                                                .rank = 3,
                                                .inner = 2}))
AC_FALLBACK_KERNEL(fallback_append,
                   (FallbackOp{.kind = FallbackKind::append, .in = {Element::f32}, .rank = 3}))
AC_ROPE_APPEND_KERNEL(rope_append_128, (RopeAppendOp{.qk_norm = true}), (RopeAppendPlan{}))
AC_ROPE_APPEND_KERNEL(rope_append_128_fp8,
                      (RopeAppendOp{.type = Type::bf16, .qk_norm = true, .fp8 = true}),
                      (RopeAppendPlan{}))
AC_MASK_LOGITS_KERNEL(mask_logits_f16, (MaskLogitsOp{Type::f16}), (MaskLogitsPlan{}))
AC_MASK_LOGITS_KERNEL(mask_logits_bf16, (MaskLogitsOp{Type::bf16}), (MaskLogitsPlan{}))
AC_DRAW_KERNEL(draw_coarse, (DrawOp{Type::bf16, DrawPass::coarse}), (DrawPlan{}))
AC_DRAW_KERNEL(draw_top_p, (DrawOp{Type::f32, DrawPass::top_p}), (DrawPlan{}))
AC_DRAW_KERNEL(draw_choose, (DrawOp{Type::bf16, DrawPass::choose}), (DrawPlan{}))
AC_ADVANCE_KERNEL(advance_wide, (AdvanceOp{.wide_ids = true}))
#endif

}  // namespace ac::kernels
