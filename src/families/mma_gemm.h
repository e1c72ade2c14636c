// Products of many tokens on tensor cores, with tiles that threads bring.
#pragma once

#include "families/products.h"
#include "kernels/mma_gemm_plan.h"

namespace ac {

struct MmaGemmTask : GemmProblem {
  static constexpr std::string_view family = "mma_gemm";
  using Plan = kernels::MmaGemmPlan;

  static Match<MmaGemmTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  Extent extent(const Plan& plan) const {
    return {.block = plan.tile_n, .tokens = plan.tile_m, .group = plan.group_m};
  }
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan);
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
