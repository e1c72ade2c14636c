// The plans and ops that the prefill benchmark compiles, and the tables of compiled kernels.
#pragma once

#include "kernels/gemm.cuh"
#include "kernels/mma_gemm.cuh"
#include "kernels/prefill_attention.cuh"
#include "kernels/tma_gemm.cuh"

namespace ac::bench {

using namespace ac::kernels;

// The matrices of a decoder layer.
enum Site { qkv, o, gate_up, down, site_count };
inline constexpr const char* site_names[] = {"qkv", "o", "gate_up", "down"};
inline constexpr GemmOp ops[] = {
    {}, {.residual = true}, {.pair = Pair::swiglu, .matrices = 2}, {.residual = true}};

constexpr MmaGemmPlan mma(int tile_m, int tile_n, int tile_k, int warp_m, int warp_n, int stages,
                          int resident, int split = 1, int group_m = 8) {
  return {.tile_m = tile_m,
          .tile_n = tile_n,
          .tile_k = tile_k,
          .warp_m = warp_m,
          .warp_n = warp_n,
          .stages = stages,
          .split = split,
          .group_m = group_m,
          .resident = resident};
}

constexpr MmaGemmPlan groups(int tile_m, int tile_n, int warp_n, int stages, int resident,
                             int split = 1) {
  MmaGemmPlan plan = mma(tile_m, tile_n, 64, 16, warp_n, stages, resident, split);
  plan.tile = Tile::wgmma;
  return plan;
}

inline constexpr MmaGemmPlan mma_plans[] = {
    mma(128, 128, 64, 64, 64, 3, 2),
    mma(128, 128, 32, 64, 64, 4, 2),
    mma(128, 256, 64, 64, 64, 3, 1),
    mma(128, 256, 64, 64, 64, 4, 1),
    mma(128, 256, 32, 64, 64, 4, 1),
    mma(256, 128, 64, 64, 64, 3, 1),
    mma(256, 128, 32, 64, 64, 4, 1, 1, 4),
    mma(128, 192, 64, 64, 48, 3, 1),
    mma(128, 128, 64, 64, 32, 4, 1),
    mma(64, 128, 64, 32, 64, 4, 2),
    mma(128, 64, 64, 64, 32, 4, 2),
    mma(64, 64, 64, 32, 32, 4, 3),
    mma(128, 128, 64, 64, 64, 3, 2, 2),
    mma(64, 128, 64, 32, 64, 4, 2, 4),
    mma(128, 64, 64, 64, 32, 4, 2, 4),
    mma(64, 64, 128, 32, 32, 3, 2, 4),
    mma(128, 128, 64, 32, 32, 4, 1),
    mma(128, 128, 64, 32, 32, 4, 1, 4),
    groups(64, 64, 64, 6, 2),
    groups(64, 128, 128, 5, 2),
    groups(128, 64, 64, 4, 2),
    groups(128, 64, 64, 6, 1),
    groups(128, 64, 64, 4, 2, 4),
    groups(128, 64, 64, 6, 1, 2),
    groups(128, 128, 128, 4, 1),
    groups(128, 128, 128, 6, 1),
    groups(128, 128, 64, 6, 1),
    groups(128, 128, 128, 6, 1, 2),
    groups(128, 128, 128, 6, 1, 4),
    groups(128, 128, 128, 6, 1, 8),
    groups(128, 256, 128, 4, 1),
    groups(256, 128, 128, 4, 1),
};
inline constexpr int mma_plan_count = sizeof(mma_plans) / sizeof(mma_plans[0]);

inline constexpr GemmPlan plain_plans[] = {
    {},
    {.tile_m = 128, .tile_n = 128, .tile_k = 8, .thread_m = 8, .thread_n = 8},
};
inline constexpr int plain_plan_count = sizeof(plain_plans) / sizeof(plain_plans[0]);

constexpr TmaGemmPlan boxes(int tile_m, int tile_n, int stages, int cluster_m, int cluster_n,
                            int group_m = 8) {
  return {.tile_m = tile_m,
          .tile_n = tile_n,
          .stages = stages,
          .cluster_m = cluster_m,
          .cluster_n = cluster_n,
          .group_m = group_m};
}
constexpr TmaGemmPlan parts_of_k(int tile_m, int tile_n, int stages, int cluster_k,
                                 int cluster_n = 1) {
  TmaGemmPlan plan = boxes(tile_m, tile_n, stages, 1, cluster_n);
  plan.cluster_k = cluster_k;
  return plan;
}
inline constexpr TmaGemmPlan tma_plans[] = {
    boxes(128, 256, 4, 2, 1),     boxes(128, 256, 4, 1, 2),   boxes(128, 256, 4, 1, 1),
    boxes(128, 128, 6, 2, 1),     boxes(128, 128, 6, 1, 2),   boxes(128, 64, 8, 1, 1),
    boxes(128, 64, 8, 1, 2),      boxes(64, 64, 12, 2, 1),    boxes(64, 64, 12, 1, 2),
    parts_of_k(128, 64, 6, 2),    parts_of_k(128, 64, 6, 4),  parts_of_k(128, 64, 6, 2, 2),
    parts_of_k(128, 64, 6, 4, 2), parts_of_k(128, 128, 4, 4), parts_of_k(64, 64, 8, 2),
};
inline constexpr int tma_plan_count = sizeof(tma_plans) / sizeof(tma_plans[0]);
inline constexpr int first_tma_plan = mma_plan_count + plain_plan_count;
inline constexpr int plan_count = first_tma_plan + tma_plan_count;

// The attention of the first two models; the third has the second's, with more heads.
inline constexpr int attention_count = 2;
inline constexpr PrefillAttentionOp attention_ops[] = {{.head_dim = 64, .group = 4},
                                                       {.head_dim = 128, .group = 2}};

constexpr PrefillAttentionPlan flash(int query_tile, int key_tile, int warps, int stages,
                                     bool keep_queries, int resident) {
  return {.query_tile = query_tile,
          .key_tile = key_tile,
          .warps = warps,
          .stages = stages,
          .keep_queries = keep_queries,
          .resident = resident};
}
inline constexpr PrefillAttentionPlan attention_plans[] = {
    flash(64, 64, 4, 2, true, 2),  flash(64, 64, 4, 2, true, 3),   flash(64, 64, 4, 2, false, 3),
    flash(64, 128, 4, 2, true, 2), flash(64, 32, 4, 3, true, 3),   flash(128, 64, 8, 2, true, 1),
    flash(128, 64, 4, 2, true, 2), flash(128, 64, 4, 2, false, 2), flash(128, 32, 4, 3, false, 2),
    flash(256, 64, 8, 2, true, 1), flash(256, 64, 8, 2, false, 1),
};
inline constexpr int attention_plan_count = sizeof(attention_plans) / sizeof(attention_plans[0]);

using GemmKernel = void (*)(GemmParams);
using TmaKernel = void (*)(TmaGemmParams);
using AttentionKernel = void (*)(PrefillAttentionParams);
// Fill the plans that are legal for the op; o and down share one.
void fill_gemm_table_0(GemmKernel* table, TmaKernel* of_tma);
void fill_gemm_table_1(GemmKernel* table, TmaKernel* of_tma);
void fill_gemm_table_2(GemmKernel* table, TmaKernel* of_tma);
void fill_attention_table_0(AttentionKernel* table);
void fill_attention_table_1(AttentionKernel* table);

}  // namespace ac::bench
