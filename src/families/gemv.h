// Products with one token, with a norm before and an epilogue behind; also the index of the
// largest.
#pragma once

#include "families/family.h"
#include "families/products.h"
#include "kernels/gemv_plan.h"

namespace ac {

// The task of a family that computes one token.
struct GemvProblem {
  using Operands = ProductOperands;
  kernels::GemvOp op;
  int n = 0, k = 0;  // outputs of all matrices together (of a pair: of one); length of x

  double bytes() const { return kernels::gemv_bytes(op, n, k); }
  double flops() const { return kernels::gemv_flops(op, n, k); }
};
struct FoundGemv {
  GemvProblem problem;
  ProductOperands operands;
};
// Or why the region is none.
std::variant<FoundGemv, std::string> find_gemv(const Body& body);

// What launches for one token are filled in with.
template <class Params>
void fill_gemv(ParamsOf<Params>& of, Params& p, const Lowering& to, const GemvProblem& problem,
               const ProductOperands& o) {
  const kernels::GemvOp& op = problem.op;
  for (int i = 0; i < op.matrices; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if constexpr (std::is_same_v<Params, kernels::CodedGemvParams>)
      point_to_scales(of, p, i, to, op.format, o.weight[at]);
    of.point(p.matrix[i].weight, o.weight[at]);
    if (op.bias) of.point(p.matrix[i].bias, o.bias[at]);
    if (o.y[at] >= 0) of.point(p.matrix[i].y, o.y[at]);
    p.matrix[i].rows = number(to.shape(o.weight[at])[0]);
  }
  p.k = problem.k;
  p.pitch = pitch_of(op.format, problem.k);
  of.point(p.x, o.x);
  if (o.norm >= 0) {
    of.point(p.norm_weight, to[o.norm].inputs[1]);
    p.norm_eps = static_cast<float>(to[o.norm].number("eps"));
    p.norm_offset = static_cast<float>(to[o.norm].number("weight_offset"));
  }
  p.scale = static_cast<float>(o.scale);
  p.softcap = static_cast<float>(o.softcap);
  if (op.residual) of.point(p.residual, o.residual);
}

struct GemvTask : GemvProblem {
  static constexpr std::string_view family = "gemv";
  using Plan = kernels::GemvPlan;

  static Match<GemvTask> match(const Body& body);
  std::vector<Plan> plans() const;
  const char* why_illegal(const Plan& plan, const DeviceInfo& device) const;
  Footprint footprint(const Plan& plan, const DeviceInfo& device) const;
  Cost cost(const Plan& plan, const DeviceInfo& device) const {
    return roofline(*this, plan, device);
  }
  Extent extent(const Plan& plan) const;
  static void write_id(const Plan& plan, IdText& id);
  static std::string_view kind(const Plan& plan) { return name_of(plan.ring); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
