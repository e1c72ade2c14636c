// The index of the largest logit. It computes no region: it comes after all of them.
#pragma once

#include "families/family.h"
#include "kernels/sampling_plan.h"

namespace ac {

struct SamplingTask {
  static constexpr std::string_view family = "sampling";
  using Plan = kernels::SamplingPlan;
  struct Operands {
    NodeId logits = -1;
  };
  kernels::SamplingOp op;
  int vocab = 1;

  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo&) const {
    return plan.why_illegal(op);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::sampling_bytes(op, vocab); }
  double flops() const { return kernels::sampling_flops(op, vocab); }
  Extent extent(const Plan&) const { return {}; }  // one logit at a time, each by itself
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return plan.vector > 1 ? "vectors" : "elements";
  }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
