// Attention of many tokens in two kernels: what comes before attention and the append, then
// attention.
#pragma once

#include "families/attending.h"
#include "families/family.h"
#include "kernels/prefill_attention_plan.h"
#include "kernels/rope_append_plan.h"

namespace ac {

struct PrefillAttentionTask {
  static constexpr std::string_view family = "prefill_attention";
  static constexpr kernels::RopeAppendPlan append_plan = {};
  using Plan = kernels::PrefillAttentionPlan;
  using Operands = AttentionOperands;
  kernels::PrefillAttentionOp op;
  kernels::RopeAppendOp append;
  int kv_heads = 1;
  int new_tokens = 1;
  int tokens = 0;  // cached ones that costs are estimated for
  int window = 0;

  int heads() const { return kv_heads * op.group; }

  static Match<PrefillAttentionTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double append_bytes() const {
    return kernels::rope_append_bytes(append, new_tokens, heads(), kv_heads);
  }
  double bytes() const;
  double flops() const { return kernels::prefill_flops(op, heads(), new_tokens, tokens, window); }
  Extent extent(const Plan& plan) const {
    return {.tokens = plan.query_tile,
            .key_tile = plan.key_tile,
            .round = std::int64_t{plan.stages} * plan.key_tile,
            .kv_heads = kFewHeads,
            .spreads = true};
  }
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return plan.splits > 1 ? "split" : name_of(plan.tile);
  }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;

  // The second kernel: attends to what the first one, or one like it, has left.
  void add_attention(const Lowering& to, const Plan& plan, const Operands& operands,
                     Generated& out) const;
};

}  // namespace ac
