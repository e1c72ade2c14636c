#include "families/embedding.h"

#include <fmt/format.h>

#include "families/rows.h"

namespace ac {

using namespace kernels;

Match<EmbeddingTask> EmbeddingTask::match(const Body& body) {
  NodeId gather = -1;
  for (const NodeId id : body.compute())
    if (body[id].op == Op::embedding) {
      if (gather >= 0) return "more than one table";
      gather = id;
    }
  if (gather < 0) return "it looks nothing up";
  if (body.compute().size() > 2) return "it does more than a scaled look-up";
  Operands operands{gather, gather};
  if (body.compute().size() == 2) {
    const NodeId other = body.compute()[body.compute()[0] == gather ? 1 : 0];
    const Node& scale = body[other];
    const bool mul = scale.op == Op::mul && body.inside(gather) && !body.is_output(gather);
    std::optional<double> factor;
    if (mul) factor = body.immediate(scale.inputs[body.immediate(scale.inputs[0]) ? 0 : 1]);
    if (!factor) return fmt::format("no place for {}", info(scale.op).name);
    operands = {gather, other, *factor};
  }
  const Node& node = body[gather];
  const TensorType& table = body.graph().type(node.inputs[0]);
  const TensorType& ids = body.graph().type(node.inputs[1]);
  const auto type = kernel_type(table.dtype);
  if (!type || body.region().dtype != table.dtype) return "no kernels for its types";
  if (ids.dtype != DType::i32 && ids.dtype != DType::i64) return "ids are no integers";
  if (table.shape.size() != 2) return "the table is not of rows";
  if (!body.is_contiguous(node.inputs[0], Role::weight)) return "the table is no whole weight";
  if (!body.is_contiguous(node.inputs[1], Role::activation)) return "ids are no argument";
  const int count = body.size(product(ids.shape)), width = body.size(table.shape[1]);
  if (count < 0 || width < 0) return "sizes beyond 32 bits";
  return Matched<EmbeddingTask>{
      EmbeddingTask{
          {.table = *type, .y = *type, .wide_ids = ids.dtype == DType::i64}, count, width},
      operands};
}

std::vector<EmbeddingPlan> EmbeddingTask::plans() const { return flat_plans<EmbeddingPlan>(); }

Footprint EmbeddingTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  return flat_footprint(plan, plan.grid(count, width, device.multiprocessors),
                        double(plan.vectors(count, width)), plan.vector,
                        plan.vector * bytes_of(op.table), device);
}

void EmbeddingTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}/v{}", plan.threads, plan.vector).grid(plan.persistent, plan.resident);
}

Generated EmbeddingTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<EmbeddingParams> of(to, out, "embedding", op, plan);
  EmbeddingParams& p = of.params;
  const Node& gather = to[o.gather];
  const Dim count = product(to.shape(gather.inputs[1]));
  of.point(p.table, gather.inputs[0]);
  of.point(p.ids, gather.inputs[1]);
  of.point(p.y, o.y);
  p.entries = number(to.shape(gather.inputs[0])[0]);
  p.width = width;
  of.count(p.count, count);
  p.scale = static_cast<float>(o.scale);
  of.launch({to.blocks(count * Dim(divide_up(width, plan.vector)), plan.threads, plan.persistent,
                       plan.blocks_per_sm()),
             1, 1},
            plan.threads, plan.shared_bytes());
  return out;
}

}  // namespace ac
