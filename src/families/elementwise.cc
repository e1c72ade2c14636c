#include "families/elementwise.h"

#include <fmt/format.h>

#include <algorithm>

#include "analyze/legality.h"
#include "families/rows.h"
#include "generate/chain.h"

namespace ac {

using namespace kernels;

Match<ElementwiseTask> ElementwiseTask::match(const Body& body) {
  const Region& region = body.region();
  if (region.outputs.size() != 1) return "more than one result";
  const Shape shape = region.outputs[0].type.shape;
  const auto out = kernel_type(region.dtype);
  if (!out) return "no kernels for its type";
  for (const NodeId id : region.nodes) {
    const Node& node = body[id];
    const bool computes = body.inside(id);
    if (computes && !is_pointwise(node.op) && node.op != Op::cast)
      return fmt::format("{} is not element by element", info(node.op).name);
    // A smaller value, or a view of one, would need an index of its own.
    const bool from_inside = computes || body.inside(storage_of(body.graph(), id));
    if (from_inside && node.type.shape != shape) return "values inside differ in shape";
    if (from_inside && !body.is_flat(id)) return "a view inside moves elements";
  }
  ElementwiseTask task;
  if (const std::string why = why_no_rows(body, shape); !why.empty()) return why;
  task.rows = body.rows(shape), task.columns = body.columns(shape);
  task.op = {.out = *out, .inputs = 0};
  task.full_inputs = 0;
  task.ops = static_cast<int>(body.compute().size());
  // Those that do not broadcast come first, as costs count them.
  struct Input {
    bool full;
    Type type;
    NodeId value;
  };
  std::vector<Input> inputs;
  for (const Parameter& input : region.inputs) {
    if (input.immediate) continue;
    const auto type = kernel_type(input.type.dtype);
    if (!type) return "an input is no float";
    const Body::Broadcast broadcast = body.broadcast_to(input.value, shape);
    if (!broadcast.two_strides) return "an input needs more than two strides";
    inputs.push_back({broadcast.full, *type, input.value});
  }
  if (inputs.empty()) return "it has no inputs";
  if (inputs.size() > 4) return "more than four inputs";
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const Input& a, const Input& b) { return a.full > b.full; });
  Operands operands{{}, region.outputs[0].value};
  for (const Input& input : inputs) {
    task.op.in[task.op.inputs++] = input.type;
    task.full_inputs += input.full;
    operands.inputs.push_back(input.value);
  }
  return Matched<ElementwiseTask>{task, std::move(operands)};
}

std::vector<ElementwisePlan> ElementwiseTask::plans() const {
  std::vector<ElementwisePlan> plans;
  for (ElementwisePlan plan : flat_plans<ElementwisePlan>())
    for (const int unroll : {1, 2, 4}) {
      plan.unroll = unroll;
      plans.push_back(plan);
    }
  return plans;
}

Footprint ElementwiseTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  double element = 0;
  for (int i = 0; i < op.inputs; ++i) element += bytes_of(op.in[i]);
  return flat_footprint(plan, plan.grid(rows, columns, device.multiprocessors),
                        double(plan.vectors(rows, columns)) / plan.unroll,
                        op.inputs * plan.vector * plan.unroll, element * plan.vector * plan.unroll,
                        device);
}

void ElementwiseTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}/v{}x{}", plan.threads, plan.vector, plan.unroll).grid(plan.persistent, plan.resident);
}

Generated ElementwiseTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<ElementwiseParams> of(to, out, "elementwise", op, plan,
                                 chain_functor(to.step.graph, o.inputs, o.y));
  ElementwiseParams& p = of.params;
  const Shape& shape = to.shape(o.y);
  const Body body = to.body();
  for (std::size_t i = 0; i < o.inputs.size(); ++i) {
    const Body::Broadcast strides = body.broadcast_to(o.inputs[i], shape);
    of.point(p.in[i].data, o.inputs[i]);
    p.in[i].row_stride = strides.row_stride;
    p.in[i].column_stride = strides.column_stride;
  }
  of.point(p.out, o.y);
  p.out_pitch = p.columns = columns;
  of.count(p.rows, rows_of(shape));
  const Dim vectors = rows_of(shape) * Dim(divide_up(columns, plan.vector));
  of.launch({to.blocks(vectors, static_cast<std::int64_t>(plan.threads) * plan.unroll,
                       plan.persistent, plan.blocks_per_sm()),
             1, 1},
            plan.threads, plan.shared_bytes());
  return out;
}

}  // namespace ac
