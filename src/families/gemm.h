// Products of many tokens by plain arithmetic units: any type and size.
#pragma once

#include "families/products.h"
#include "kernels/gemm_plan.h"

namespace ac {

struct GemmTask : GemmProblem {
  static constexpr std::string_view family = "gemm";
  static constexpr bool reads_codes = true;
  using Plan = kernels::GemmPlan;

  static Match<GemmTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const {
    return plan.why_illegal(op, shape, device.max_shared_bytes);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  Extent extent(const Plan& plan) const {
    return {.block = plan.tile_n,
            .at_once = blocks_of_scales(op.format, plan.tile_n),
            .tokens = plan.tile_m,
            .group = plan.group_m};
  }
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan&) { return "plain"; }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
