// Attention of one token over what is cached, with RoPE, norms and the append before it.
#pragma once

#include "families/attending.h"
#include "families/family.h"
#include "kernels/attention_plan.h"

namespace ac {

struct AttentionTask {
  static constexpr std::string_view family = "attention";
  using Plan = kernels::AttentionPlan;
  using Operands = AttentionOperands;
  kernels::AttentionOp op;
  int kv_heads = 1;
  int tokens = 0;  // cached ones that costs are estimated for

  static Match<AttentionTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const {
    return plan.why_illegal(op, device.max_shared_bytes);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::attention_bytes(op, kv_heads, tokens); }
  double flops() const { return kernels::attention_flops(op, kv_heads, tokens); }
  Extent extent(const Plan& plan) const;
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) { return name_of(plan.tile); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
