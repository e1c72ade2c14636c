#include "families/softmax.h"

#include <fmt/format.h>

#include "families/rows.h"

namespace ac {

using namespace kernels;

Match<SoftmaxTask> SoftmaxTask::match(const Body& body) {
  NodeId softmax = -1;
  for (const NodeId id : body.compute())
    if (body[id].op == Op::softmax) softmax = id;
  if (softmax < 0) return "it has no softmax";
  const Node& node = body[softmax];
  const Shape& shape = node.type.shape;
  if (node.integer("axis") + 1 != static_cast<std::int64_t>(shape.size()))
    return "softmax over another axis than the last";
  NodeId x = node.inputs[0];
  double factor = 1;
  if (body.compute().size() == 2 && body.inside(x)) {
    const Node& scale = body[x];
    const bool mul = scale.op == Op::mul, div = scale.op == Op::div;
    const std::size_t side = mul && body.immediate(scale.inputs[0]) ? 0 : 1;
    const auto immediate = mul || div ? body.immediate(scale.inputs[side]) : std::nullopt;
    if (!immediate || body.is_output(x)) return fmt::format("no place for {}", info(scale.op).name);
    factor = mul ? *immediate : 1 / *immediate;
    x = scale.inputs[1 - side];
  } else if (body.compute().size() != 1) {
    return "it does more than a softmax";
  }
  const auto type = kernel_type(body.region().dtype);
  if (!type) return "no kernels for its type";
  if (const std::string why = why_no_rows(body, shape); !why.empty()) return why;
  if (!body.input(x) || body.graph().type(x).shape != shape || !body.row_pitch(x))
    return "rows of x are not at equal distances";
  return Matched<SoftmaxTask>{
      SoftmaxTask{{.x = *type, .y = *type}, body.rows(shape), body.columns(shape)},
      Operands{x, softmax, factor}};
}

std::vector<SoftmaxPlan> SoftmaxTask::plans() const {
  std::vector<SoftmaxPlan> plans;
  for (const SoftmaxPasses passes : {SoftmaxPasses::online, SoftmaxPasses::two})
    for (const RowsMemory& m : rows_memory())
      for (const RowsParallel& p : rows_parallel())
        plans.push_back({p.team, passes, m.keep, m.kept, p.threads, m.vector, p.threads * p.blocks,
                         p.persistent});
  return plans;
}

Footprint SoftmaxTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  return rows_footprint(*this, plan, plan.shared_bytes(columns), plan.kept, device);
}

void SoftmaxTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}{}/{}", name_of(plan.team), plan.threads, name_of(plan.keep))
      .unless("kept", plan.kept, 1, "{}", plan.kept)
      .add("/v{}", plan.vector)
      .grid(plan.persistent, plan.resident)
      .unless("passes", plan.passes, SoftmaxPasses::online, "/two");
}

Generated SoftmaxTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<SoftmaxParams> of(to, out, "softmax", op, plan);
  SoftmaxParams& p = of.params;
  of.point(p.x, o.x);
  p.x_pitch = to.pitch(o.x);
  of.point(p.y, o.y);
  p.y_pitch = p.columns = columns;
  of.count(p.rows, rows_of(to.shape(o.y)));
  p.scale = static_cast<float>(o.scale);
  of.launch({to.blocks(rows_of(to.shape(o.y)), plan.rows_at_once(), plan.persistent,
                       plan.blocks_per_sm()),
             1, 1},
            plan.threads, plan.shared_bytes(columns));
  return out;
}

}  // namespace ac
