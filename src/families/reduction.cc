#include "families/reduction.h"

#include "analyze/legality.h"
#include "families/rows.h"
#include "generate/chain.h"

namespace ac {

using namespace kernels;

namespace {

// A chain of unary ops and of binary ones with immediates, from an outside value to `value`.
std::optional<NodeId> source_of_chain(const Body& body, NodeId value, std::size_t& length) {
  while (body.inside(value)) {
    const Node& node = body[value];
    if (!is_pointwise(node.op) || body.is_output(value)) return std::nullopt;
    std::optional<NodeId> next;
    for (const NodeId input : node.inputs) {
      if (body.immediate(input)) continue;
      if (next && *next != input) return std::nullopt;
      next = input;
    }
    if (!next || body.graph().type(*next).shape != node.type.shape) return std::nullopt;
    ++length;
    value = *next;
  }
  return value;
}

}  // namespace

Match<ReductionTask> ReductionTask::match(const Body& body) {
  NodeId reduction = -1;
  for (const NodeId id : body.compute())
    if (info(body[id].op).rule == ShapeRule::reduce) {
      if (reduction >= 0) return "more than one reduction";
      reduction = id;
    }
  if (reduction < 0) return "it has no reduction";
  const Node& node = body[reduction];
  const Shape& shape = body.graph().type(node.inputs[0]).shape;
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  if (node.integers("axes") != std::vector<std::int64_t>{last})
    return "a reduction over other axes than the last";
  std::size_t length = 1;
  const auto x = source_of_chain(body, node.inputs[0], length);
  if (!x || length != body.compute().size())
    return "it does more than a chain of one input before the reduction";
  const auto type = kernel_type(body.region().dtype);
  if (!type) return "no kernels for its type";
  if (const std::string why = why_no_rows(body, shape); !why.empty()) return why;
  if (!body.row_pitch(*x)) return "rows of x are not at equal distances";
  const Fold fold = node.op == Op::sum ? Fold::sum : node.op == Op::mean ? Fold::mean : Fold::max;
  return Matched<ReductionTask>{
      ReductionTask{{.x = *type, .y = *type, .fold = fold}, body.rows(shape), body.columns(shape)},
      Operands{*x, reduction}};
}

std::vector<ReductionPlan> ReductionTask::plans() const {
  std::vector<ReductionPlan> plans;
  for (const int vector : {1, 2, 4, 8})
    for (const RowsParallel& p : rows_parallel())
      plans.push_back({p.team, p.threads, vector, p.threads * p.blocks, p.persistent});
  return plans;
}

Footprint ReductionTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  return rows_footprint(*this, plan, plan.shared_bytes(), 1, device);
}

void ReductionTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}{}/once/v{}", name_of(plan.team), plan.threads, plan.vector)
      .grid(plan.persistent, plan.resident);
}

Generated ReductionTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  const NodeId mapped = to[o.y].inputs[0];
  KernelOf<ReductionParams> of(to, out, "reduction", op, plan,
                               chain_functor(to.step.graph, {o.x}, mapped));
  ReductionParams& p = of.params;
  of.point(p.x, o.x);
  p.x_pitch = to.pitch(o.x);
  of.point(p.y, o.y);
  of.count(p.rows, rows_of(to.shape(o.x)));
  p.columns = columns;
  of.launch({to.blocks(rows_of(to.shape(o.x)), plan.rows_at_once(), plan.persistent,
                       plan.blocks_per_sm()),
             1, 1},
            plan.threads, plan.shared_bytes());
  return out;
}

}  // namespace ac
