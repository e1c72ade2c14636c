// Products with one token or a few, with a norm before and an epilogue behind; of one, also the
// index of the largest. A token has the same bits, whatever is computed with it.
#pragma once

#include "families/family.h"
#include "families/products.h"
#include "kernels/gemv_plan.h"

namespace ac {

// The task of a family that computes few tokens.
struct GemvProblem {
  using Operands = ProductOperands;
  kernels::GemvOp op;
  int n = 0, k = 0;    // outputs of all matrices together (of a pair: of one); length of x
  int tokens = 1;      // that are planned for
  bool is_one = true;  // there are never more

  double bytes() const { return kernels::gemv_bytes(op, n, k, tokens); }
  double flops() const { return kernels::gemv_flops(op, n, k, tokens); }
  // For each number of tokens that blocks may compute at once: none where there are so many that
  // weights would be read time and again.
  std::vector<int> tokens_at_once() const;
  // A reason or null.
  const char* why_illegal(int tokens_at_once) const {
    return (tokens_at_once == 1) == is_one ? nullptr : "one token has plans of its own";
  }
  // How often a plan reads the weights.
  int passes(int tokens_at_once) const { return kernels::divide_up(tokens, tokens_at_once); }
};
// The plan that computes one token with the bits that this one gives to each.
template <class Plan>
Plan for_one_token(Plan plan) {
  plan.tokens = 1;
  return plan;
}
struct FoundGemv {
  GemvProblem problem;
  ProductOperands operands;
};
// Or why the region is none.
std::variant<FoundGemv, std::string> find_gemv(const Body& body);

// What launches for few tokens are filled in with.
template <class Params>
void fill_gemv(ParamsOf<Params>& of, Params& p, const Lowering& to, const GemvProblem& problem,
               const ProductOperands& o) {
  const kernels::GemvOp& op = problem.op;
  for (int i = 0; i < op.matrices; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if constexpr (std::is_base_of_v<kernels::CodedGemvParams, Params>)
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
  if constexpr (requires { p.tokens; }) of.count(p.tokens, rows_of(to.shape(o.y[0])));
}

// Makes a launch of a family's kernel, whose parameters `finish` may add to.
template <class Task, class Finish>
Generated lower_few(const Task& task, const Lowering& to, const typename Task::Plan& plan,
                    const ProductOperands& operands, const Finish& finish) {
  Generated out;
  const auto launch = [&]<class Params>() {
    KernelOf<Params> of(to, out, Task::family, task.op, plan);
    fill_gemv(of, of.params, to, task, operands);
    const int grid = plan.grid(task.op, task.n, to.setting.multiprocessors);
    finish(of, grid);
    Count groups = 1;
    if (plan.tokens > 1)
      groups = count_of(rows_of(to.shape(operands.y[0]))), groups.per = plan.tokens;
    of.launch({grid, groups, 1}, plan.threads, plan.shared_bytes(task.op, task.k));
  };
  using namespace kernels;
  const bool plain = task.op.format.is_plain(), one = plan.tokens == 1;
  if (plain && one) launch.template operator()<GemvParams>();
  if (plain && !one) launch.template operator()<ForTokens<GemvParams>>();
  if (!plain && one) launch.template operator()<CodedGemvParams>();
  if (!plain && !one) launch.template operator()<ForTokens<CodedGemvParams>>();
  return out;
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
  static Plan alone(const Plan& plan) { return for_one_token(plan); }
  Generated lower(const Lowering& to, const Plan& plan, const Operands& operands) const;
};

}  // namespace ac
