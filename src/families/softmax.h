// Softmax of rows, perhaps scaled before.
#pragma once

#include "families/family.h"
#include "kernels/softmax_plan.h"

namespace ac {

struct SoftmaxTask {
  static constexpr std::string_view family = "softmax";
  using Plan = kernels::SoftmaxPlan;
  struct Operands {
    NodeId x = -1, y = -1;
    double scale = 1;
  };
  kernels::SoftmaxOp op;
  int rows = 1, columns = 1;

  static Match<SoftmaxTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const {
    return plan.why_illegal(op, columns, device.max_shared_bytes);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::softmax_bytes(op, rows, columns); }
  double flops() const { return kernels::softmax_flops(op, rows, columns); }
  Extent extent(const Plan&) const { return {}; }  // one row at a time, each by itself
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) { return name_of(plan.team); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
