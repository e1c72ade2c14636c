// A kernel family as src/families/ has them, but for its line in the list: see docs/adding.md.
#pragma once

#include "families/softmax.h"
#include "tests/extend/kernels/lean_softmax_plan.h"

namespace ac::test {

struct LeanSoftmaxTask {
  static constexpr std::string_view family = "lean_softmax";
  using Plan = kernels::LeanSoftmaxPlan;
  using Operands = SoftmaxTask::Operands;
  kernels::LeanSoftmaxOp op;
  int rows = 1, columns = 1;

  static Match<LeanSoftmaxTask> match(const Body& body);
  std::vector<Plan> plans() const { return {{64}, {128}, {256}}; }
  const char* why_illegal(const Plan& plan, const DeviceInfo&) const {
    return plan.why_illegal(op);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return 2.0 * rows * columns * bytes_of(op.x); }
  double flops() const { return 5.0 * rows * columns; }
  Extent extent(const Plan& plan) const { return {.block = plan.threads}; }
  static void write_id(const Plan& plan, IdText& id) { id.add("{}", plan.threads); }
  static std::string_view kind(const Plan&) { return "lean"; }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac::test
