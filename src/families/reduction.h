// Sums, means and maxima of rows, of what a chain makes of each element.
#pragma once

#include "families/family.h"
#include "kernels/reduction_plan.h"

namespace ac {

struct ReductionTask {
  static constexpr std::string_view family = "reduction";
  using Plan = kernels::ReductionPlan;
  struct Operands {
    NodeId x = -1, y = -1;
  };
  kernels::ReductionOp op;
  int rows = 1, columns = 1;

  static Match<ReductionTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo&) const {
    return plan.why_illegal(op);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::reduction_bytes(op, rows, columns); }
  double flops() const { return kernels::reduction_flops(op, rows, columns); }
  Extent extent(const Plan&) const { return {}; }  // one row at a time, each by itself
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) { return name_of(plan.team); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
