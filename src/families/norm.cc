#include "families/norm.h"

#include <fmt/format.h>

#include "families/rows.h"

namespace ac {

using namespace kernels;

Match<NormTask> NormTask::match(const Body& body) {
  NodeId norm = -1, sum = -1;
  for (const NodeId id : body.compute()) {
    const Op op = body[id].op;
    if ((op == Op::rms_norm || op == Op::layer_norm) && norm < 0)
      norm = id;
    else if (op == Op::add && sum < 0)
      sum = id;
    else
      return fmt::format("no place for {}", info(op).name);
  }
  if (norm < 0) return "it has no norm";
  const Node& node = body[norm];
  const auto type = kernel_type(body.region().dtype);
  if (!type) return "no kernels for its type";
  const Shape& shape = node.type.shape;
  if (const std::string why = why_no_rows(body, shape); !why.empty()) return why;

  NormTask task;
  task.rows = body.rows(shape), task.columns = body.columns(shape);
  task.op = {.norm = node.op == Op::layer_norm ? Norm::layer : Norm::rms,
             .x = *type,
             .weight = *type,
             .y = *type,
             .weighted = node.inputs.size() > 1,
             .bias = node.inputs.size() > 2};
  for (std::size_t i = 1; i < node.inputs.size(); ++i)
    if (!body.is_contiguous(node.inputs[i], Role::weight)) return "a weight is not whole";
  if (sum < 0) {
    if (!body.input(node.inputs[0]) || !body.row_pitch(node.inputs[0]))
      return "rows of x are not at equal distances";
    return Matched<NormTask>{task, Operands{.x = node.inputs[0], .norm = norm}};
  }
  if (node.inputs[0] != sum) return "the add does not come before the norm";
  for (const NodeId input : body[sum].inputs)
    if (!body.is_contiguous(input, Role::activation) || body.graph().type(input).shape != shape)
      return "the sum is not of two equal activations";
  if (!body.is_output(sum)) return "nobody needs the sum that the kernel stores";
  task.op.residual = true;
  const std::vector<NodeId>& added = body[sum].inputs;
  return Matched<NormTask>{task, Operands{added[0], added[1], sum, norm}};
}

std::vector<NormPlan> NormTask::plans() const {
  std::vector<NormPlan> plans;
  std::vector<Variance> variances{Variance::two_pass};
  if (op.layer()) variances.push_back(Variance::welford);
  for (const Variance variance : variances)
    for (const RowsMemory& m : rows_memory())
      for (const RowsParallel& p : rows_parallel())
        plans.push_back({p.team, m.keep, m.kept, variance, p.threads, m.vector,
                         p.threads * p.blocks, p.persistent});
  return plans;
}

Footprint NormTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  return rows_footprint(*this, plan, plan.shared_bytes(columns), plan.kept, device);
}

void NormTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}{}/{}", name_of(plan.team), plan.threads, name_of(plan.keep))
      .unless("kept", plan.kept, 1, "{}", plan.kept)
      .add("/v{}", plan.vector)
      .grid(plan.persistent, plan.resident)
      .unless("variance", plan.variance, Variance::two_pass, "/welford");
}

Generated NormTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<NormParams> of(to, out, "norm", op, plan);
  NormParams& p = of.params;
  const Node& norm = to[o.norm];
  of.point(p.x, o.x);
  p.x_pitch = to.pitch(o.x);
  if (o.sum >= 0) of.point(p.residual, o.residual), of.point(p.sum, o.sum);
  if (norm.inputs.size() > 1) of.point(p.weight, norm.inputs[1]);
  if (norm.inputs.size() > 2) of.point(p.bias, norm.inputs[2]);
  of.point(p.y, o.norm);
  p.y_pitch = p.columns = columns;
  of.count(p.rows, rows_of(norm.type.shape));
  p.eps = static_cast<float>(norm.number("eps"));
  if (norm.op == Op::rms_norm) p.weight_offset = static_cast<float>(norm.number("weight_offset"));
  of.launch({to.blocks(rows_of(norm.type.shape), plan.rows_at_once(), plan.persistent,
                       plan.blocks_per_sm()),
             1, 1},
            plan.threads, plan.shared_bytes(columns));
  return out;
}

}  // namespace ac
