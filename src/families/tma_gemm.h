// Products of many tokens on tensor cores, with tiles that the copy engine brings (sm_90a).
#pragma once

#include "families/products.h"
#include "kernels/tma_gemm_plan.h"

namespace ac {

struct TmaGemmTask : GemmProblem {
  static constexpr std::string_view family = "tma_gemm";
  static constexpr bool reads_codes = true;
  using Plan = kernels::TmaGemmPlan;

  static Match<TmaGemmTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  Extent extent(const Plan& plan) const {
    return {.block = plan.tile_n,
            .at_once = blocks_of_scales(op.format, plan.tile_n),
            .tokens = plan.tile_m,
            .group = std::int64_t{plan.group_m} * plan.cluster_m,
            .rounds_weights = !op.format.is_plain()};
  }
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return plan.cluster_k > 1 ? "split" : plan.cluster() > 1 ? "cluster" : "alone";
  }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

// Blocks with other tokens, and with other weights. Clusters of four do not fill an H100's
// multiprocessors: with many tokens, half as fast.
struct TmaCluster {
  int m, n;
};
inline constexpr TmaCluster kTmaClusters[] = {{1, 1}, {2, 1}, {1, 2}};

}  // namespace ac
