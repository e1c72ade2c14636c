// Norms of rows, and of sums that are stored as well.
#pragma once

#include "families/family.h"
#include "kernels/norm_plan.h"

namespace ac {

struct NormTask {
  static constexpr std::string_view family = "norm";
  using Plan = kernels::NormPlan;
  struct Operands {
    NodeId x = -1, residual = -1;
    NodeId sum = -1;   // the add node, if there is a residual
    NodeId norm = -1;  // the norm node
  };
  kernels::NormOp op;
  int rows = 1, columns = 1;

  static Match<NormTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const {
    return plan.why_illegal(op, columns, device.max_shared_bytes);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::norm_bytes(op, rows, columns); }
  double flops() const { return kernels::norm_flops(op, rows, columns); }
  Extent extent(const Plan&) const { return {}; }  // one row at a time, each by itself
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) { return name_of(plan.team); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
