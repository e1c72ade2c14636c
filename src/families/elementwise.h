// Chains of ops element by element, of inputs that may broadcast.
#pragma once

#include "families/family.h"
#include "kernels/elementwise_plan.h"

namespace ac {

struct ElementwiseTask {
  static constexpr std::string_view family = "elementwise";
  using Plan = kernels::ElementwisePlan;
  struct Operands {
    std::vector<NodeId> inputs;  // in the order of the op's types
    NodeId y = -1;
  };
  kernels::ElementwiseOp op;
  int rows = 1, columns = 1;
  int full_inputs = 1;  // inputs that do not broadcast
  int ops = 1;          // of the chain

  static Match<ElementwiseTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo&) const {
    return plan.why_illegal(op, rows, columns);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::elementwise_bytes(op, full_inputs, rows, columns); }
  double flops() const { return kernels::elementwise_flops(ops, rows, columns); }
  Extent extent(const Plan&) const { return {}; }  // one element at a time, each by itself
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return plan.vector > 1 ? "vectors" : "elements";
  }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
