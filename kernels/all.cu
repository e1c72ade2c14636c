// Defaults of every kernel family, compiled for every architecture we name, so that a family that
// no longer compiles, or spills registers, is seen without a GPU.
#include "kernels/attention.cuh"
#include "kernels/gemm.cuh"
#include "kernels/gemv.cuh"
#include "kernels/mma_gemm.cuh"
#include "kernels/prefill_attention.cuh"

namespace ac::kernels {

constexpr GemvOp qkv{.norm = true, .bias = true, .matrices = 3};
constexpr GemvOp projection{.residual = true};
constexpr GemvOp gate_up{.norm = true, .pair = Pair::swiglu, .matrices = 2};
constexpr GemvOp head{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::f32, .norm = true, .argmax = true};

constexpr GemvPlan registers{};
constexpr GemvPlan registers_roomy{.resident = 512};
constexpr GemvPlan registers_pair{.rows = 2, .depth = 4};
constexpr GemvPlan async_copy{.ring = Ring::async_copy};
constexpr GemvPlan any_shape{.depth = 1, .ring = Ring::none};
AC_GEMV_KERNEL(gemv_qkv, qkv, registers_roomy)
AC_GEMV_KERNEL(gemv_projection, projection, registers)
AC_GEMV_KERNEL(gemv_gate_up, gate_up, registers_pair)
AC_GEMV_KERNEL(gemv_head, head, registers)
AC_GEMV_KERNEL(gemv_projection_async_copy, projection, async_copy)
AC_GEMV_KERNEL(gemv_projection_any_shape, projection, any_shape)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr GemvPlan bulk_copy{.depth = 4, .chunks = 4, .ring = Ring::bulk_copy};
AC_GEMV_KERNEL(gemv_projection_bulk_copy, projection, bulk_copy)
#endif

constexpr AttentionPlan mma{};
constexpr AttentionPlan mma_wide{.threads = 128, .resident = 256};
constexpr AttentionPlan scalar{.tile = Tile::scalar};
AC_ATTENTION_KERNEL(attention_64, (AttentionOp{.head_dim = 64, .rotary = 64}), mma)
AC_ATTENTION_KERNEL(attention_128, (AttentionOp{.type = Type::bf16, .qk_norm = true}), mma)
AC_ATTENTION_KERNEL(attention_256, (AttentionOp{.head_dim = 256, .rotary = 256}), mma_wide)
AC_ATTENTION_KERNEL(attention_any, (AttentionOp{.type = Type::f32, .head_dim = 80, .rotary = 32}),
                    scalar)

constexpr GemmOp gemm_projection{.residual = true};
constexpr GemmOp gemm_gate_up{
    .weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .pair = Pair::swiglu, .matrices = 2};
constexpr GemmOp gemm_f32{
    .weight = Type::f32, .x = Type::f32, .y = Type::f32, .bias = true, .matrices = 3};
constexpr GemmPlan gemm_plan{};
AC_GEMM_KERNEL(gemm_projection_any_shape, gemm_projection, gemm_plan)
AC_GEMM_KERNEL(gemm_gate_up_any_shape, gemm_gate_up, gemm_plan)
AC_GEMM_KERNEL(gemm_qkv_any_shape, gemm_f32, gemm_plan)

constexpr MmaGemmPlan mma_gemm_plan{};
constexpr MmaGemmPlan mma_gemm_large{.tile_n = 256};
constexpr MmaGemmPlan mma_gemm_split{
    .tile_m = 64, .tile_n = 64, .warp_m = 32, .warp_n = 32, .stages = 4, .split = 4};
AC_MMA_GEMM_KERNEL(mma_gemm_projection, gemm_projection, mma_gemm_plan)
AC_MMA_GEMM_KERNEL(mma_gemm_gate_up, gemm_gate_up, mma_gemm_plan)
AC_MMA_GEMM_KERNEL(mma_gemm_qkv, (GemmOp{.bias = true, .matrices = 3}), mma_gemm_large)
AC_MMA_GEMM_KERNEL(mma_gemm_projection_split, gemm_projection, mma_gemm_split)

constexpr PrefillAttentionPlan prefill_mma{};
constexpr PrefillAttentionPlan prefill_mma_tall{.query_tile = 128};
constexpr PrefillAttentionPlan prefill_mma_wide{
    .key_tile = 32, .keep_queries = false, .resident = 1};
constexpr PrefillAttentionPlan prefill_scalar{
    .tile = Tile::scalar, .query_tile = 16, .key_tile = 32, .stages = 1};
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_64, (PrefillAttentionOp{.head_dim = 64}),
                            prefill_mma_tall)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_80, (PrefillAttentionOp{.head_dim = 80, .group = 1}),
                            prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_96, (PrefillAttentionOp{.head_dim = 96, .group = 1}),
                            prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_128,
                            (PrefillAttentionOp{.type = Type::bf16, .group = 2}), prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_256, (PrefillAttentionOp{.head_dim = 256}),
                            prefill_mma_wide)
AC_PREFILL_ATTENTION_KERNEL(prefill_attention_any,
                            (PrefillAttentionOp{.type = Type::f32, .head_dim = 100}),
                            prefill_scalar)

}  // namespace ac::kernels
