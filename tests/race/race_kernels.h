// Kernels compiled with -fsanitize=thread, so that the host device sees each of their accesses.
#pragma once

#include "kernels/attention.cuh"
#include "kernels/draw.cuh"
#include "kernels/gemm.cuh"
#include "kernels/gemv.cuh"
#include "kernels/layers.cuh"
#include "kernels/mma_gemm.cuh"
#include "kernels/norm.cuh"
#include "kernels/prefill_attention.cuh"
#include "kernels/reduction.cuh"
#include "kernels/rope_append.cuh"
#include "kernels/sampling.cuh"
#include "kernels/softmax.cuh"
#include "kernels/tma_gemm.cuh"

namespace ac::kernels {

enum class Fault {
  none,
  missing_barrier,
  missing_warp_barrier,
  write_after_read,
  early_write,
  copy_not_waited_for,
  readers_not_waited_for,
  missing_fence,
  fence_before_the_writes,
  missing_fence_after,
  not_the_last,
  written_twice,
  not_atomic,
  outside
};

void sum_neighbours(const float* in, float* out, Fault fault);  // out[i] = in[i] + in[i ^ 33]
void swap_in_warp(const float* in, float* out, Fault fault);    // out[i] = in[i ^ 1]
void bulk_ring(const float* in, float* out, Fault fault);       // out[i] = in[i] + in[32 + i] + ...
void loader_ring(const float* in, float* out, Fault fault);     // the same, for a second warp
// out[i] = the sum of in[0] to in[63], by products of what threads wrote
void products_of_writes(const float* in, float* out, Fault fault);
// out[i] = the sum of in[i] over blocks, by the block that is done last.
struct BlockSums {
  float *partial, *out;  // [blocks][threads], [threads]
  unsigned *finished, *total;
};
void sum_of_blocks(const float* in, BlockSums sums, Fault fault);
void pass_around(float* out, Fault fault);  // out[i] = i, through the cluster's other blocks

constexpr GemvOp race_op{
    .x = Type::f32, .y = Type::f32, .norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvOp race_head{.y = Type::f32, .norm = true, .argmax = true};
constexpr GemvPlan race_registers{
    .threads = 128, .rows = 2, .depth = 2, .split = 2, .resident = 128};
constexpr GemvPlan race_async{
    .threads = 128, .rows = 2, .depth = 3, .ring = Ring::async_copy, .resident = 128};
constexpr GemvPlan race_bulk{.threads = 128,
                             .rows = 2,
                             .depth = 2,
                             .chunks = 2,
                             .ring = Ring::bulk_copy,
                             .split = 4,
                             .resident = 128};
constexpr GemvPlan race_slow{
    .threads = 64, .rows = 2, .depth = 1, .ring = Ring::none, .resident = 64};

constexpr AttentionOp race_attention_op{.head_dim = 64, .group = 3, .qk_norm = true, .rotary = 64};
constexpr AttentionPlan race_mma{.threads = 64, .splits = 3};
constexpr AttentionPlan race_scalar{.tile = Tile::scalar, .threads = 128, .splits = 2};

constexpr GemmOp race_gemm_op{.pair = Pair::swiglu, .residual = true, .matrices = 2};
constexpr GemmPlan race_gemm_double{
    .tile_m = 16, .tile_n = 32, .tile_k = 8, .thread_m = 2, .thread_n = 4};
constexpr GemmPlan race_gemm_single{
    .tile_m = 16, .tile_n = 32, .tile_k = 8, .thread_m = 2, .thread_n = 4, .stages = 1};
constexpr MmaGemmPlan race_mma_deep{
    .tile_m = 32, .tile_n = 32, .tile_k = 32, .warp_m = 16, .warp_n = 16};
constexpr MmaGemmPlan race_mma_short{
    .tile_m = 32, .tile_n = 32, .tile_k = 16, .warp_m = 16, .warp_n = 16, .stages = 2, .split = 2};
constexpr MmaGemmPlan race_mma_wgmma{.tile_m = 64,
                                     .tile_n = 128,
                                     .tile_k = 64,
                                     .warp_m = 16,
                                     .warp_n = 64,
                                     .stages = 3,
                                     .tile = Tile::wgmma};
constexpr TmaGemmPlan race_tma{
    .tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_n = 1, .group_m = 1};

constexpr GemmOp race_codes_op{
    .pair = Pair::swiglu, .matrices = 2, .format = {Codes::u4, ScaleType::f16, true, 1, 32}};

constexpr PrefillAttentionOp race_prefill_op{.head_dim = 64, .group = 2};
constexpr PrefillAttentionPlan race_prefill_mma{.query_tile = 32, .key_tile = 16, .warps = 2};
constexpr PrefillAttentionPlan race_prefill_deep{
    .query_tile = 32, .key_tile = 16, .warps = 2, .stages = 3, .keep_queries = false};
constexpr PrefillAttentionPlan race_prefill_split{
    .query_tile = 32, .key_tile = 32, .warps = 4, .splits = 2};
constexpr PrefillAttentionPlan race_prefill_wgmma{.tile = Tile::wgmma,
                                                  .query_tile = 128,
                                                  .key_tile = 64,
                                                  .warps = 8,
                                                  .keep_queries = false,
                                                  .resident = 1};
constexpr PrefillAttentionPlan race_prefill_kept{
    .tile = Tile::wgmma, .query_tile = 64, .key_tile = 64, .stages = 3, .resident = 1};
constexpr PrefillAttentionPlan race_prefill_scalar{
    .tile = Tile::scalar, .query_tile = 8, .key_tile = 32, .warps = 2, .stages = 1};

constexpr ReductionOp race_sum{.y = Type::f32};
constexpr ReductionPlan race_rows{.threads = 96, .resident = 96};
constexpr SoftmaxOp race_softmax_op{};
constexpr SoftmaxPlan race_online{.threads = 64, .resident = 64};
constexpr SoftmaxPlan race_two_shared{
    .passes = SoftmaxPasses::two, .keep = Keep::shared, .threads = 128, .resident = 128};
constexpr NormOp race_rms{.residual = true};
constexpr NormOp race_layer{.norm = Norm::layer, .bias = true};
constexpr NormPlan race_norm_registers{.threads = 64, .resident = 64};
constexpr NormPlan race_norm_shared{
    .keep = Keep::shared, .kept = 1, .threads = 96, .vector = 4, .resident = 96};
constexpr NormPlan race_norm_welford{
    .kept = 4, .variance = Variance::welford, .threads = 128, .vector = 4, .resident = 128};
// A pair is on two lanes.
constexpr RopeAppendOp race_rope_op{.head_dim = 80, .qk_norm = true, .rotary = 40};
constexpr RopeAppendPlan race_rope_plan{.threads = 64, .resident = 64};
constexpr SamplingOp race_logits{};
constexpr SamplingPlan race_blocks{.threads = 96, .resident = 96};
constexpr DrawPlan race_draws{.threads = 128};

constexpr LayersOp race_layers_op{
    .hidden = 192, .heads = 4, .kv_heads = 2, .head_dim = 64, .inter = 320, .head_norms = true};
constexpr LayersPlan race_blocks_of_layers{.blocks = 3, .stages = 3, .window = 2};

}  // namespace ac::kernels

extern "C" {
void race_reduction(ac::kernels::ReductionParams);
void race_softmax_online(ac::kernels::SoftmaxParams);
void race_softmax_two_shared(ac::kernels::SoftmaxParams);
void race_norm_rms_registers(ac::kernels::NormParams);
void race_norm_rms_shared(ac::kernels::NormParams);
void race_norm_layer_shared(ac::kernels::NormParams);
void race_norm_layer_welford(ac::kernels::NormParams);
void race_rope_append(ac::kernels::RopeAppendParams);
void race_sampling(ac::kernels::SamplingParams);
void race_draw_coarse(ac::kernels::DrawParams);
void race_draw_top_k(ac::kernels::DrawParams);
void race_draw_top_p(ac::kernels::DrawParams);
void race_draw_choose(ac::kernels::DrawParams);
void race_gemv_registers(ac::kernels::GemvParams);
void race_gemv_async(ac::kernels::GemvParams);
void race_gemv_bulk(ac::kernels::GemvParams);
void race_gemv_slow(ac::kernels::GemvParams);
void race_gemv_head(ac::kernels::GemvParams);
void race_attention_mma(ac::kernels::AttentionParams);
void race_attention_scalar(ac::kernels::AttentionParams);
void race_gemm_double_stage(ac::kernels::GemmParams);
void race_gemm_single_stage(ac::kernels::GemmParams);
void race_mma_gemm_deep(ac::kernels::GemmParams);
void race_mma_gemm_short(ac::kernels::GemmParams);
void race_mma_gemm_groups(ac::kernels::GemmParams);
void race_tma_gemm(ac::kernels::GemmParams);
void race_tma_codes(ac::kernels::CodedGemmParams);
void race_layers(ac::kernels::LayersParams);
void race_prefill_mma_short(ac::kernels::PrefillAttentionParams);
void race_prefill_mma_deep(ac::kernels::PrefillAttentionParams);
void race_prefill_mma_split(ac::kernels::PrefillAttentionParams);
void race_prefill_groups(ac::kernels::PrefillAttentionParams);
void race_prefill_groups_kept(ac::kernels::PrefillAttentionParams);
void race_prefill_any(ac::kernels::PrefillAttentionParams);
}
