// The row-wise families: norm, softmax, reduction, elementwise chain, embedding.
#include <fmt/format.h>

#include <algorithm>

#include "analyze/legality.h"
#include "plan/body.h"

namespace ac {
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

std::string no_rows(const Body& body, const Shape& shape) {
  const int columns = body.columns(shape);
  return body.rows(shape) < 0 || columns < 0 || columns > kMaxRow ? "sizes beyond 32 bits" : "";
}

}  // namespace

Match match_norm(const Body& body) {
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
  if (const std::string why = no_rows(body, shape); !why.empty()) return why;

  NormTask task;
  task.rows = body.rows(shape), task.columns = body.columns(shape);
  task.op = {.norm = node.op == Op::layer_norm ? kernels::Norm::layer : kernels::Norm::rms,
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
    return Matched{task, NormOperands{.x = node.inputs[0], .norm = norm}};
  }
  if (node.inputs[0] != sum) return "the add does not come before the norm";
  for (const NodeId input : body[sum].inputs)
    if (!body.is_contiguous(input, Role::activation) || body.graph().type(input).shape != shape)
      return "the sum is not of two equal activations";
  if (!body.is_output(sum)) return "nobody needs the sum that the kernel stores";
  task.op.residual = true;
  const std::vector<NodeId>& added = body[sum].inputs;
  return Matched{task, NormOperands{added[0], added[1], sum, norm}};
}

Match match_softmax(const Body& body) {
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
  if (const std::string why = no_rows(body, shape); !why.empty()) return why;
  if (!body.input(x) || body.graph().type(x).shape != shape || !body.row_pitch(x))
    return "rows of x are not at equal distances";
  return Matched{SoftmaxTask{{.x = *type, .y = *type}, body.rows(shape), body.columns(shape)},
                 SoftmaxOperands{x, softmax, factor}};
}

Match match_reduction(const Body& body) {
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
  if (const std::string why = no_rows(body, shape); !why.empty()) return why;
  if (!body.row_pitch(*x)) return "rows of x are not at equal distances";
  const kernels::Fold fold = node.op == Op::sum    ? kernels::Fold::sum
                             : node.op == Op::mean ? kernels::Fold::mean
                                                   : kernels::Fold::max;
  return Matched{
      ReductionTask{{.x = *type, .y = *type, .fold = fold}, body.rows(shape), body.columns(shape)},
      ReductionOperands{*x, reduction}};
}

Match match_elementwise(const Body& body) {
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
  if (const std::string why = no_rows(body, shape); !why.empty()) return why;
  task.rows = body.rows(shape), task.columns = body.columns(shape);
  task.op = {.out = *out, .inputs = 0};
  task.full_inputs = 0;
  task.ops = static_cast<int>(body.compute().size());
  // Those that do not broadcast come first, as costs count them.
  struct Input {
    bool full;
    kernels::Type type;
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
  ElementwiseOperands operands{{}, region.outputs[0].value};
  for (const Input& input : inputs) {
    task.op.in[task.op.inputs++] = input.type;
    task.full_inputs += input.full;
    operands.inputs.push_back(input.value);
  }
  return Matched{task, std::move(operands)};
}

Match match_embedding(const Body& body) {
  NodeId gather = -1;
  for (const NodeId id : body.compute())
    if (body[id].op == Op::embedding) {
      if (gather >= 0) return "more than one table";
      gather = id;
    }
  if (gather < 0) return "it looks nothing up";
  if (body.compute().size() > 2) return "it does more than a scaled look-up";
  EmbeddingOperands operands{gather, gather};
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
  return Matched{
      EmbeddingTask{
          {.table = *type, .y = *type, .wide_ids = ids.dtype == DType::i64}, count, width},
      operands};
}

}  // namespace ac
