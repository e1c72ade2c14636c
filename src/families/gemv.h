// Products with one token, with a norm before and an epilogue behind; also the index of the
// largest.
#pragma once

#include "families/family.h"
#include "families/products.h"
#include "kernels/gemv_plan.h"

namespace ac {

struct GemvTask {
  static constexpr std::string_view family = "gemv";
  using Plan = kernels::GemvPlan;
  using Operands = ProductOperands;
  kernels::GemvOp op;
  int n = 0, k = 0;  // outputs of all matrices together (of a pair: of one); length of x

  static Match<GemvTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  double bytes() const { return kernels::gemv_bytes(op, n, k); }
  double flops() const { return kernels::gemv_flops(op, n, k); }
  Extent extent(const Plan& plan) const;
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) { return name_of(plan.ring); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
