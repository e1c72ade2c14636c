// Rows of a table by ids, perhaps scaled.
#pragma once

#include "families/family.h"
#include "kernels/embedding_plan.h"

namespace ac {

struct EmbeddingTask {
  static constexpr std::string_view family = "embedding";
  using Plan = kernels::EmbeddingPlan;
  struct Operands {
    NodeId gather = -1;  // the embedding node
    NodeId y = -1;
    double scale = 1;
  };
  kernels::EmbeddingOp op;
  int count = 1, width = 1;

  static Match<EmbeddingTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo&) const {
    return plan.why_illegal(op, count, width);
  }
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::embedding_bytes(op, count, width); }
  double flops() const { return kernels::embedding_flops(op, count, width); }
  Extent extent(const Plan&) const { return {}; }  // one element at a time, each by itself
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) {
    return plan.vector > 1 ? "vectors" : "elements";
  }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
