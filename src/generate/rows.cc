// Launches of the families that go row by row or element by element.
#include "generate/chain.h"
#include "generate/make.h"

namespace ac {

using namespace kernels;

Generated make(const MakeContext& c, const Implementation<NormTask>& made, const NormOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("norm", "kernels/norm.cuh", "AC_NORM_KERNEL", "NormOp",
                             op_text(c.choice), "NormPlan", plan_text(c.choice))};
  ParamsOf<NormParams> of(c.step, out);
  NormParams& p = of.params;
  const Node& norm = c[o.norm];
  of.point(p.x, o.x);
  p.x_pitch = pitch_of(c, o.x);
  if (o.sum >= 0) of.point(p.residual, o.residual), of.point(p.sum, o.sum);
  if (norm.inputs.size() > 1) of.point(p.weight, norm.inputs[1]);
  if (norm.inputs.size() > 2) of.point(p.bias, norm.inputs[2]);
  of.point(p.y, o.norm);
  p.y_pitch = p.columns = task.columns;
  of.count(p.rows, rows_of(norm.type.shape));
  p.eps = static_cast<float>(norm.number("eps"));
  if (norm.op == Op::rms_norm) p.weight_offset = static_cast<float>(norm.number("weight_offset"));
  out.launches = {shaped(of.finish(), out.sources[0],
                         {work(rows_of(norm.type.shape), plan.rows_at_once(), plan.persistent,
                               plan.blocks_per_sm(), c.setting),
                          1, 1},
                         plan.threads, plan.shared_bytes(task.columns))};
  return out;
}

Generated make(const MakeContext& c, const Implementation<SoftmaxTask>& made,
               const SoftmaxOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("softmax", "kernels/softmax.cuh", "AC_SOFTMAX_KERNEL", "SoftmaxOp",
                             op_text(c.choice), "SoftmaxPlan", plan_text(c.choice))};
  ParamsOf<SoftmaxParams> of(c.step, out);
  SoftmaxParams& p = of.params;
  of.point(p.x, o.x);
  p.x_pitch = pitch_of(c, o.x);
  of.point(p.y, o.y);
  p.y_pitch = p.columns = task.columns;
  of.count(p.rows, rows_of(c.shape(o.y)));
  p.scale = static_cast<float>(o.scale);
  out.launches = {shaped(of.finish(), out.sources[0],
                         {work(rows_of(c.shape(o.y)), plan.rows_at_once(), plan.persistent,
                               plan.blocks_per_sm(), c.setting),
                          1, 1},
                         plan.threads, plan.shared_bytes(task.columns))};
  return out;
}

Generated make(const MakeContext& c, const Implementation<ReductionTask>& made,
               const ReductionOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  const NodeId mapped = c[o.y].inputs[0];
  out.sources = {instantiate("reduction", "kernels/reduction.cuh", "AC_REDUCTION_KERNEL",
                             "ReductionOp", op_text(c.choice), "ReductionPlan", plan_text(c.choice),
                             chain_functor(c.step.graph, {o.x}, mapped))};
  ParamsOf<ReductionParams> of(c.step, out);
  ReductionParams& p = of.params;
  of.point(p.x, o.x);
  p.x_pitch = pitch_of(c, o.x);
  of.point(p.y, o.y);
  of.count(p.rows, rows_of(c.shape(o.x)));
  p.columns = task.columns;
  out.launches = {shaped(of.finish(), out.sources[0],
                         {work(rows_of(c.shape(o.x)), plan.rows_at_once(), plan.persistent,
                               plan.blocks_per_sm(), c.setting),
                          1, 1},
                         plan.threads, plan.shared_bytes())};
  return out;
}

Generated make(const MakeContext& c, const Implementation<ElementwiseTask>& made,
               const ElementwiseOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("elementwise", "kernels/elementwise.cuh", "AC_ELEMENTWISE_KERNEL",
                             "ElementwiseOp", op_text(c.choice), "ElementwisePlan",
                             plan_text(c.choice), chain_functor(c.step.graph, o.inputs, o.y))};
  ParamsOf<ElementwiseParams> of(c.step, out);
  ElementwiseParams& p = of.params;
  const Shape& shape = c.shape(o.y);
  const Body body = c.body();
  for (std::size_t i = 0; i < o.inputs.size(); ++i) {
    const Body::Broadcast strides = body.broadcast_to(o.inputs[i], shape);
    of.point(p.in[i].data, o.inputs[i]);
    p.in[i].row_stride = strides.row_stride;
    p.in[i].column_stride = strides.column_stride;
  }
  of.point(p.out, o.y);
  p.out_pitch = p.columns = task.columns;
  of.count(p.rows, rows_of(shape));
  const Dim vectors = rows_of(shape) * Dim(divide_up(task.columns, plan.vector));
  out.launches = {shaped(of.finish(), out.sources[0],
                         {work(vectors, static_cast<std::int64_t>(plan.threads) * plan.unroll,
                               plan.persistent, plan.blocks_per_sm(), c.setting),
                          1, 1},
                         plan.threads, plan.shared_bytes())};
  return out;
}

Generated make(const MakeContext& c, const Implementation<EmbeddingTask>& made,
               const EmbeddingOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("embedding", "kernels/embedding.cuh", "AC_EMBEDDING_KERNEL",
                             "EmbeddingOp", op_text(c.choice), "EmbeddingPlan",
                             plan_text(c.choice))};
  ParamsOf<EmbeddingParams> of(c.step, out);
  EmbeddingParams& p = of.params;
  const Node& gather = c[o.gather];
  const Dim count = product(c.shape(gather.inputs[1]));
  of.point(p.table, gather.inputs[0]);
  of.point(p.ids, gather.inputs[1]);
  of.point(p.y, o.y);
  p.entries = number(c.shape(gather.inputs[0])[0]);
  p.width = task.width;
  of.count(p.count, count);
  p.scale = static_cast<float>(o.scale);
  out.launches = {shaped(of.finish(), out.sources[0],
                         {work(count * Dim(divide_up(task.width, plan.vector)), plan.threads,
                               plan.persistent, plan.blocks_per_sm(), c.setting),
                          1, 1},
                         plan.threads, plan.shared_bytes())};
  return out;
}

}  // namespace ac
