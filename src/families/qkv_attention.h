// Attention of many tokens with the products before it, in two kernels: the products of q, k and v
// with all that comes before attention, the append included; then attention.
#pragma once

#include "families/prefill_attention.h"
#include "families/tma_gemm.h"
#include "kernels/qkv_rope_plan.h"

namespace ac {

// The fields of a TmaGemmPlan, then those of a PrefillAttentionPlan.
struct QkvAttentionPlan {
  int tile_m = 128, tile_n = 256, stages = 4, cluster_m = 2, cluster_n = 1, group_m = 8;
  kernels::Tile tile = kernels::Tile::wgmma;
  int query_tile = 64, key_tile = 64, warps = 4, key_stages = 2;
  bool keep_queries = false;
  int resident = 2, splits = 1;
  AC_FIELDS(QkvAttentionPlan, tile_m, tile_n, stages, cluster_m, cluster_n, group_m, tile,
            query_tile, key_tile, warps, key_stages, keep_queries, resident, splits)

  constexpr kernels::TmaGemmPlan product() const {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .cluster_m = cluster_m,
            .cluster_n = cluster_n,
            .group_m = group_m};
  }
  constexpr kernels::PrefillAttentionPlan attention() const {
    return {.tile = tile,
            .query_tile = query_tile,
            .key_tile = key_tile,
            .warps = warps,
            .stages = key_stages,
            .keep_queries = keep_queries,
            .resident = resident,
            .splits = splits};
  }
};

struct QkvAttentionTask {
  static constexpr std::string_view family = "qkv_attention";
  // So that a whole model can be run with it where there is no GPU.
  static constexpr const char* left_out_on_host =
      "the host gains nothing by it, and takes it only where --families names it";
  using Plan = QkvAttentionPlan;
  // The products' outputs are nowhere, nor q, k and v.
  struct Operands {
    ProductOperands product;
    AttentionOperands attention;
  };
  kernels::QkvRopeOp op;
  kernels::GemmShape shape;
  PrefillAttentionTask attention;  // its append is the op's

  TmaGemmTask product() const { return {{op.product, shape}}; }

  static Match<QkvAttentionTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  // Of the product, which is the larger of the two; cost() adds attention's.
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const {
    return product().footprint(plan.product(), device);
  }
  Cost cost(const Plan& plan, const DeviceInfo& device) const;
  double bytes() const { return product().bytes() + attention.bytes() - attention.append_bytes(); }
  double flops() const { return product().flops() + attention.flops(); }
  Extent extent(const Plan& plan) const;
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return PrefillAttentionTask::kind(plan.attention());
  }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
