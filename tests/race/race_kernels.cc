#include "tests/race/race_kernels.h"

#include "tests/unit/matrix_map.h"

namespace ac::kernels {

__global__ void sum_neighbours(const float* in, float* out, Fault fault) {
  AC_SHARED(float, values, 64);
  const unsigned i = threadIdx.x;
  if (fault == Fault::early_write) out[i] = 0;
  wait_for_dependency();
  for (int pass = 0; pass < 2; ++pass) {
    values[i] = in[i];
    if (fault != Fault::missing_barrier) __syncthreads();
    out[i] = values[i] + values[i ^ 33];
    if (fault != Fault::write_after_read) __syncthreads();
  }
}

__global__ void swap_in_warp(const float* in, float* out, Fault fault) {
  AC_DYNAMIC_SHARED(memory);
  auto* values = reinterpret_cast<float*>(memory);
  wait_for_dependency();
  values[threadIdx.x] = in[threadIdx.x];
  if (fault != Fault::missing_warp_barrier) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void bulk_ring(const float* in, float* out, Fault fault) {
  AC_DYNAMIC_SHARED(memory);
  auto* slot = reinterpret_cast<float*>(memory);
  AC_SHARED(CopyBarrier, filled, 1);
  wait_for_dependency();
  if (threadIdx.x == 0) barrier_init(filled);
  __syncwarp();
  float sum = 0;
  for (unsigned turn = 0; turn < 3; ++turn) {
    if (threadIdx.x == 0) {
      barrier_expect(filled, 128);
      copy_bulk(slot, in + 32 * turn, 128, filled);
    }
    barrier_wait(filled, turn % 2);
    sum += slot[threadIdx.x];
    if (fault != Fault::missing_warp_barrier) __syncwarp();
  }
  out[threadIdx.x] = sum;
}

// One thread copies, as soon as it may, and the other warp reads.
__global__ void loader_ring(const float* in, float* out, Fault fault) {
  AC_DYNAMIC_SHARED(memory);
  auto* slot = reinterpret_cast<float*>(memory);
  AC_SHARED(CopyBarrier, filled, 1);
  AC_SHARED(CopyBarrier, free, 1);
  wait_for_dependency();
  if (threadIdx.x == 0) barrier_init(filled), barrier_init(free);
  if (fault != Fault::missing_barrier) __syncthreads();
  float sum = 0;
  for (unsigned turn = 0; turn < 3; ++turn) {
    if (threadIdx.x == 0) {
      if (turn > 0 && fault != Fault::readers_not_waited_for) barrier_wait(free, (turn - 1) % 2);
      barrier_expect(filled, 128);
      copy_bulk(slot, in + 32 * turn, 128, filled);
    } else if (threadIdx.x >= 32) {
      if (fault != Fault::copy_not_waited_for || threadIdx.x == 33) barrier_wait(filled, turn % 2);
      sum += slot[threadIdx.x - 32];
      if (fault != Fault::missing_warp_barrier) __syncwarp();
      if (threadIdx.x == 32) barrier_arrive(free);
    }
  }
  if (threadIdx.x >= 32) out[threadIdx.x - 32] = sum;
}

__global__ void products_of_writes(const float* in, float* out, Fault fault) {
  AC_ALIGNED_SHARED(panels, 1024);
  wait_for_dependency();
  const int row = static_cast<int>(threadIdx.x) % 64;
  unsigned char* const tile = panels + threadIdx.x / 64 * 64 * 128;
  if (fault == Fault::fence_before_the_writes) publish_to_products();
  for (int i = 0; i < 64; ++i)
    reinterpret_cast<f16*>(tile + PanelRows<64>::offset(row, i / 8))[i % 8] =
        from_float<f16>(threadIdx.x < 64 ? in[i] : 1.f);
  if (fault == Fault::none || fault == Fault::missing_barrier) publish_to_products();
  if (fault != Fault::missing_barrier) __syncthreads();
  float sums[8][4] = {};
  products_begin();
  for (int k = 0; k < 4; ++k)
    multiply_shared<f16, 64>(sums, moved(shared_tile<64>(panels), k * 32),
                             moved(shared_tile<64>(panels + 64 * 128), k * 32), true);
  products_commit();
  products_wait<0>();
  out[threadIdx.x] = sums[0][0];
}

__global__ void sum_of_blocks(const float* in, BlockSums sums, Fault fault) {
  AC_SHARED(int, is_last, 1);
  const unsigned i = threadIdx.x;
  wait_for_dependency();
  if (fault == Fault::outside) is_last[1] = 0;
  if (fault == Fault::fence_before_the_writes) __threadfence();
  sums.partial[blockIdx.x * blockDim.x + i] = in[i] + static_cast<float>(blockIdx.x);
  if (fault == Fault::not_atomic && i == 0)
    *sums.total += blockIdx.x;
  else if (i == 0)
    atomicAdd(sums.total, blockIdx.x);
  if (fault != Fault::missing_fence && fault != Fault::fence_before_the_writes) __threadfence();
  if (fault != Fault::missing_barrier) __syncthreads();
  if (i == 0) *is_last = atomicInc(sums.finished, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (fault != Fault::not_the_last && !*is_last) return;
  if (fault != Fault::missing_fence_after) __threadfence();
  float sum = static_cast<float>(*sums.total);
  for (unsigned b = 0; b < gridDim.x; ++b) sum += sums.partial[b * blockDim.x + i];
  sums.out[i] = sum;
  if (fault == Fault::written_twice) sums.out[i ^ 1] = sum;
}

__global__ void pass_around(float* out, Fault fault) {
  AC_DYNAMIC_SHARED(memory);
  AC_SHARED(CopyBarrier, arrived, 1);
  auto* const values = reinterpret_cast<float4*>(memory);
  const unsigned i = threadIdx.x, blocks = gridDim.x;
  const int next = static_cast<int>((blockIdx.x + 1) % blocks);
  wait_for_dependency();
  if (i == 0) barrier_init(arrived), barrier_expect(arrived, blockDim.x * 16);
  if (fault == Fault::write_after_read) values[i] = make_float4(0, 0, 0, 0);
  if (fault != Fault::missing_barrier) meet_cluster<2>();
  if (fault == Fault::readers_not_waited_for) values[i] = make_float4(0, 0, 0, 0);
  store_async16(cluster_address(values + i, next), make_float4(static_cast<float>(i), 0, 0, 0),
                cluster_address(arrived, next));
  if (fault != Fault::copy_not_waited_for || i != 1) barrier_wait_for_cluster(arrived, 0);
  out[blockIdx.x * blockDim.x + i] = values[i].x;
  meet_cluster<2>();
}

AC_LAYERS_KERNEL(race_layers, race_layers_op, race_blocks_of_layers)

}  // namespace ac::kernels

using namespace ac::kernels;
AC_GEMV_KERNEL(race_gemv_registers, race_op, race_registers)
AC_GEMV_KERNEL(race_gemv_async, race_op, race_async)
AC_GEMV_KERNEL(race_gemv_bulk, race_op, race_bulk)
AC_GEMV_KERNEL(race_gemv_slow, race_op, race_slow)
AC_GEMV_KERNEL(race_gemv_head, race_head, race_registers)
AC_ATTENTION_KERNEL(race_attention_mma, race_attention_op, race_mma)
AC_ATTENTION_KERNEL(race_attention_scalar, race_attention_op, race_scalar)
AC_GEMM_KERNEL(race_gemm_double_stage, race_gemm_op, race_gemm_double)
AC_GEMM_KERNEL(race_gemm_single_stage, race_gemm_op, race_gemm_single)
AC_MMA_GEMM_KERNEL(race_mma_gemm_deep, race_gemm_op, race_mma_deep)
AC_MMA_GEMM_KERNEL(race_mma_gemm_short, race_gemm_op, race_mma_short)
AC_MMA_GEMM_KERNEL(race_mma_gemm_groups, race_gemm_op, race_mma_wgmma)
AC_PREFILL_ATTENTION_KERNEL(race_prefill_mma_short, race_prefill_op, race_prefill_mma)
AC_PREFILL_ATTENTION_KERNEL(race_prefill_mma_deep, race_prefill_op, race_prefill_deep)
AC_PREFILL_ATTENTION_KERNEL(race_prefill_mma_split, race_prefill_op, race_prefill_split)
AC_PREFILL_ATTENTION_KERNEL(race_prefill_groups, race_prefill_op, race_prefill_wgmma)
AC_PREFILL_ATTENTION_KERNEL(race_prefill_groups_kept, race_prefill_op, race_prefill_kept)
AC_PREFILL_ATTENTION_KERNEL(race_prefill_any, race_prefill_op, race_prefill_scalar)
AC_REDUCTION_KERNEL(race_reduction, race_sum, race_rows, Identity)
AC_SOFTMAX_KERNEL(race_softmax_online, race_softmax_op, race_online)
AC_SOFTMAX_KERNEL(race_softmax_two_shared, race_softmax_op, race_two_shared)
AC_NORM_KERNEL(race_norm_rms_registers, race_rms, race_norm_registers)
AC_NORM_KERNEL(race_norm_rms_shared, race_rms, race_norm_shared)
AC_NORM_KERNEL(race_norm_layer_shared, race_layer, race_norm_shared)
AC_NORM_KERNEL(race_norm_layer_welford, race_layer, race_norm_welford)
AC_ROPE_APPEND_KERNEL(race_rope_append, race_rope_op, race_rope_plan)
AC_SAMPLING_KERNEL(race_sampling, race_logits, race_blocks)
AC_DRAW_KERNEL(race_draw_coarse, (DrawOp{Type::f32, DrawPass::coarse}), race_draws)
AC_DRAW_KERNEL(race_draw_top_k, (DrawOp{Type::f32, DrawPass::top_k}), race_draws)
AC_DRAW_KERNEL(race_draw_top_p, (DrawOp{Type::f32, DrawPass::top_p}), race_draws)
AC_DRAW_KERNEL(race_draw_choose, (DrawOp{Type::f32, DrawPass::choose}), race_draws)

// Nobody binds the maps here.
void race_tma_gemm(GemmParams p) {
  TmaGemmParams all{};
  all.gemm = p;
  const Type type = race_gemm_op.x;
  all.x = matrix_map(type, p.x, p.m, p.k, p.x_pitch, race_tma.box_m());
  for (int i = 0; i < race_gemm_op.matrices; ++i)
    all.weight[i] = matrix_map(type, p.matrix[i].weight, p.matrix[i].rows, p.k, p.pitch,
                               race_tma.box_n(race_gemm_op));
  tma_gemm<race_gemm_op, race_tma>(all);
}
void race_tma_codes(CodedGemmParams p) {
  CodedTmaGemmParams all{};
  all.gemm = p;
  all.x = matrix_map(race_codes_op.x, p.x, p.m, p.k, p.x_pitch, race_tma.box_m());
  tma_gemm<race_codes_op, race_tma>(all);
}
