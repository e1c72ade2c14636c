#include "ir/shape.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/assumptions.h"

namespace ac {
namespace {

// Rules report what is wrong by throwing this; infer_type turns it into a value.
struct Problem {
  std::string text;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Problem{fmt::format(format, std::forward<Args>(args)...)};
}

struct Call {
  const Node& node;
  std::vector<const TensorType*> in;

  const TensorType& operator[](std::size_t i) const { return *in[i]; }
  std::size_t arity() const { return in.size(); }
};

void require_float(const TensorType& type, const char* what) {
  if (!is_float(type.dtype)) fail("{} is {}, not a float tensor", what, to_string(type));
}

void require_same_dtype(const Call& call) {
  for (std::size_t i = 1; i < call.arity(); ++i)
    if (call[i].dtype != call[0].dtype)
      fail("inputs differ in dtype: {} and {}", to_string(call[0]), to_string(call[i]));
}

Shape broadcast_all(const Call& call, std::size_t first = 0) {
  Shape shape = call[first].shape;
  for (std::size_t i = first + 1; i < call.arity(); ++i) {
    const auto joined = broadcast(shape, call[i].shape);
    if (!joined)
      fail("shapes {} and {} do not broadcast", to_string(shape), to_string(call[i].shape));
    shape = *joined;
  }
  return shape;
}

std::size_t checked_axis(std::int64_t axis, std::size_t rank) {
  if (axis < 0 || axis >= static_cast<std::int64_t>(rank))
    fail("axis {} is not among the {} axes", axis, rank);
  return static_cast<std::size_t>(axis);
}

const Dim& last(const TensorType& type) {
  if (type.shape.empty()) fail("needs at least one axis, got {}", to_string(type));
  return type.shape.back();
}

void require_vector(const TensorType& type, const Dim& size, const char* what) {
  if (type.shape != Shape{size}) fail("{} is {}, expected [{}]", what, to_string(type), size.str());
}

TensorType reduce(const Call& call) {
  TensorType type = call[0];
  if (call.node.op != Op::amax) require_float(type, "the input");
  std::vector<bool> reduced(type.shape.size());
  for (const std::int64_t axis : call.node.integers("axes"))
    reduced[checked_axis(axis, type.shape.size())] = true;
  Shape shape;
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    if (!reduced[i])
      shape.push_back(type.shape[i]);
    else if (call.node.flag("keep"))
      shape.push_back(1);
  }
  type.shape = std::move(shape);
  return type;
}

TensorType norm(const Call& call) {
  require_float(call[0], "the input");
  require_same_dtype(call);
  for (std::size_t i = 1; i < call.arity(); ++i)
    require_vector(call[i], last(call[0]), i == 1 ? "the weight" : "the bias");
  if (!(call.node.number("eps") >= 0)) fail("eps is {}", call.node.number("eps"));
  return call[0];
}

TensorType matmul(const Call& call) {
  require_float(call[0], "the input");
  require_same_dtype(call);
  const Shape &a = call[0].shape, &b = call[1].shape;
  if (a.size() < 2 || b.size() < 2)
    fail("needs matrices, got {} and {}", to_string(a), to_string(b));
  if (a.back() != b[b.size() - 2])
    fail("inner sizes differ: {} and {}", to_string(a), to_string(b));
  auto shape = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (!shape) fail("batch sizes differ: {} and {}", to_string(a), to_string(b));
  shape->push_back(a[a.size() - 2]);
  shape->push_back(b.back());
  return {call[0].dtype, *shape};
}

TensorType linear(const Call& call) {
  require_float(call[0], "the input");
  require_same_dtype(call);
  const Shape& weight = call[1].shape;
  if (weight.size() != 2 || weight[1] != last(call[0]))
    fail("input {} does not fit weight {}", to_string(call[0].shape), to_string(weight));
  if (call.arity() == 3) require_vector(call[2], weight[0], "the bias");
  TensorType type = call[0];
  type.shape.back() = weight[0];
  return type;
}

TensorType embedding(const Call& call) {
  if (call[0].shape.empty()) fail("the table has no axes");
  if (call[1].dtype != DType::i64 && call[1].dtype != DType::i32)
    fail("the ids are {}, not integers", to_string(call[1]));
  TensorType type{call[0].dtype, call[1].shape};
  type.shape.insert(type.shape.end(), call[0].shape.begin() + 1, call[0].shape.end());
  return type;
}

TensorType rope(const Call& call) {
  require_float(call[0], "the input");
  const Shape& x = call[0].shape;
  if (x.size() < 2) fail("the input is {}, expected [S, ..., d]", to_string(call[0]));
  require_vector(call[1], x[0], "the positions");
  if (call[1].dtype != DType::i64) fail("the positions are {}, not i64", to_string(call[1]));
  const Shape& frequencies = call[2].shape;
  if (frequencies.size() != 1 || !frequencies[0].is_constant() || !x.back().is_constant() ||
      frequencies[0].constant() > x.back().constant() / 2)
    fail("{} frequencies do not fit {} features", to_string(frequencies), x.back().str());
  return call[0];
}

TensorType attention(const Call& call) {
  require_float(call[0], "q");
  require_same_dtype(call);
  const Shape &q = call[0].shape, &k = call[1].shape, &v = call[2].shape;
  if (q.size() != 3 || k.size() != 3 || v.size() != 3)
    fail("needs q, k, v of 3 axes, got {}, {}, {}", to_string(q), to_string(k), to_string(v));
  if (k[0] != q[0] || v[0] != q[0] || k[1] != v[1] || k[2] != q[2])
    fail("q {}, k {} and v {} do not fit", to_string(q), to_string(k), to_string(v));
  if (!q[1].is_constant() || !k[1].is_constant() || k[1].constant() < 1 ||
      q[1].constant() % k[1].constant() != 0)
    fail("{} heads are not a multiple of {} key-value heads", q[1].str(), k[1].str());
  if (call.node.integer("window") < 0) fail("window is {}", call.node.integer("window"));
  if (!(call.node.number("softcap") >= 0)) fail("softcap is {}", call.node.number("softcap"));
  if (call.node.has(kScoresWithin) && !(call.node.number(kScoresWithin) > 0))
    fail("scores_within is {}", call.node.number(kScoresWithin));
  return {call[0].dtype, {q[0], q[1], v[2]}};
}

TensorType reshape(const Call& call) {
  const Shape& shape = call.node.dims("shape");
  if (product(shape) != product(call[0].shape))
    fail("cannot reshape {} to {}", to_string(call[0].shape), to_string(shape));
  return {call[0].dtype, shape};
}

TensorType permute(const Call& call) {
  const auto& axes = call.node.integers("axes");
  const Shape& from = call[0].shape;
  std::vector<std::int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> all(from.size());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all) fail("axes are not a permutation of the {} axes", from.size());
  TensorType type{call[0].dtype, {}};
  for (const std::int64_t axis : axes) type.shape.push_back(from[static_cast<std::size_t>(axis)]);
  return type;
}

TensorType expand(const Call& call) {
  const Shape& shape = call.node.dims("shape");
  if (broadcast(call[0].shape, shape) != shape)
    fail("cannot expand {} to {}", to_string(call[0].shape), to_string(shape));
  return {call[0].dtype, shape};
}

TensorType slice(const Call& call) {
  const Node& node = call.node;
  TensorType type = call[0];
  const std::size_t axis = checked_axis(node.integer("axis"), type.shape.size());
  const Dim &start = node.dim("start"), &end = node.dim("end"), &size = type.shape[axis];
  const std::int64_t step = node.integer("step");
  const auto bad = [&] {
    fail("slice {}:{}:{} does not fit axis {} of {}", start.str(), end.str(), step, axis,
         to_string(type.shape));
  };
  if (step < 1) bad();
  for (const Dim* bound : {&start, &end}) {
    if (bound->is_constant() && bound->constant() < 0) bad();
    const Dim rest = size - *bound;
    if (rest.is_constant() && rest.constant() < 0) bad();
  }
  const Dim length = end - start;
  if (length.is_constant() && length.constant() < 0) bad();
  if (step == 1)
    type.shape[axis] = length;
  else if (length.is_constant())
    type.shape[axis] = (length.constant() + step - 1) / step;
  else
    fail("a strided slice of the symbolic length {} is not supported", length.str());
  return type;
}

TensorType concat(const Call& call) {
  require_same_dtype(call);
  TensorType type = call[0];
  const std::size_t axis = checked_axis(call.node.integer("axis"), type.shape.size());
  for (std::size_t i = 1; i < call.arity(); ++i) {
    Shape other = call[i].shape;
    if (other.size() != type.shape.size())
      fail("cannot concatenate {} and {}", to_string(type), to_string(call[i]));
    const Dim joined = type.shape[axis] + other[axis];
    other[axis] = type.shape[axis];
    if (other != type.shape)
      fail("cannot concatenate {} and {}", to_string(type), to_string(call[i]));
    type.shape[axis] = joined;
  }
  return type;
}

TensorType apply_rule(const Call& call) {
  const OpInfo& op = info(call.node.op);
  switch (op.rule) {
    case ShapeRule::declared:
      return call.node.type;
    case ShapeRule::positions:
      if (call.node.type.dtype != DType::i64 || call.node.type.shape.size() != 1)
        fail("positions are {}, expected i64[S]", to_string(call.node.type));
      return call.node.type;
    case ShapeRule::cast:
      return {std::get<DType>(call.node.attrs.at("dtype")), call[0].shape};
    case ShapeRule::unary:
      if (call.node.op != Op::neg && call.node.op != Op::abs) require_float(call[0], "the input");
      if (call[0].dtype == DType::boolean) fail("the input is bool");
      return call[0];
    case ShapeRule::binary:
      require_same_dtype(call);
      if (call[0].dtype == DType::boolean) fail("the inputs are bool");
      return {call[0].dtype, broadcast_all(call)};
    case ShapeRule::compare:
      require_same_dtype(call);
      return {DType::boolean, broadcast_all(call)};
    case ShapeRule::logical:
      require_same_dtype(call);
      if (call[0].dtype != DType::boolean) fail("the input is {}, not bool", to_string(call[0]));
      return {DType::boolean, broadcast_all(call)};
    case ShapeRule::where:
      if (call[0].dtype != DType::boolean) fail("the condition is {}", to_string(call[0]));
      if (call[1].dtype != call[2].dtype) fail("the branches differ in dtype");
      return {call[1].dtype, broadcast_all(call)};
    case ShapeRule::reduce:
      return reduce(call);
    case ShapeRule::softmax:
      require_float(call[0], "the input");
      checked_axis(call.node.integer("axis"), call[0].shape.size());
      return call[0];
    case ShapeRule::norm:
      return norm(call);
    case ShapeRule::matmul:
      return matmul(call);
    case ShapeRule::linear:
      return linear(call);
    case ShapeRule::embedding:
      return embedding(call);
    case ShapeRule::rope:
      return rope(call);
    case ShapeRule::attention:
      return attention(call);
    case ShapeRule::reshape:
      return reshape(call);
    case ShapeRule::permute:
      return permute(call);
    case ShapeRule::expand:
      return expand(call);
    case ShapeRule::slice:
      return slice(call);
    case ShapeRule::concat:
      return concat(call);
    case ShapeRule::triangle:
      if (call[0].shape.size() < 2) fail("needs a matrix, got {}", to_string(call[0]));
      return call[0];
  }
  AC_UNREACHABLE();
}

void check_form(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  const OpInfo& op = info(node.op);
  const int arity = static_cast<int>(node.inputs.size());
  if (arity < op.min_inputs || arity > op.max_inputs)
    fail("{} inputs, expected {}", arity,
         op.min_inputs == op.max_inputs ? fmt::format("{}", op.min_inputs)
                                        : fmt::format("{} to {}", op.min_inputs, op.max_inputs));
  for (const NodeId input : node.inputs)
    if (input < 0 || input >= id) fail("input %{} is not a node before this one", input);
  for (const AttrSpec& spec : op.attrs) {
    const auto found = node.attrs.find(spec.name);
    if (found == node.attrs.end()) {
      if (spec.optional) continue;
      fail("attribute \"{}\" is missing", spec.name);
    }
    if (found->second.index() != static_cast<std::size_t>(spec.type))
      fail("attribute \"{}\" has the wrong type", spec.name);
  }
  for (const auto& [name, value] : node.attrs)
    if (!op.attr(name)) fail("has no attribute \"{}\"", name);
  for (const Dim& dim : node.type.shape)
    if (dim.is_constant() && dim.constant() < 0) fail("negative size in {}", to_string(node.type));
  if (node.op == Op::constant) {
    const Dim size = product(node.type.shape);
    if (!size.is_constant() || !std::get<Data>(node.attrs.at("data")) ||
        static_cast<std::size_t>(size.constant()) != node.data().size())
      fail("the data does not fill {}", to_string(node.type));
  }
}

}  // namespace

std::vector<std::int64_t> reduced_axes(const Graph& graph, const Node& node) {
  switch (info(node.op).over) {
    case Over::axes:
      return node.integers("axes");
    case Over::axis:
      return {node.integer("axis")};
    case Over::last:
      return {std::ssize(graph.type(node.inputs[0]).shape) - 1};
    case Over::each:
    case Over::own:
      return {};
  }
  AC_UNREACHABLE();
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape shape = longer;
  const std::size_t shift = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    Dim& dim = shape[shift + i];
    if (dim == shorter[i] || shorter[i] == Dim(1)) continue;
    if (dim != Dim(1)) return std::nullopt;
    dim = shorter[i];
  }
  return shape;
}

Inferred infer_type(const Graph& graph, NodeId id) {
  try {
    check_form(graph, id);
    Call call{graph[id], {}};
    for (const NodeId input : graph[id].inputs) call.in.push_back(&graph.type(input));
    Inferred result{apply_rule(call), {}};
    for (const Dim& dim : result.type.shape)
      if (dim.is_constant() && dim.constant() < 0)
        fail("negative size in {}", to_string(result.type));
    return result;
  } catch (const Problem& problem) {
    return {{}, problem.text};
  }
}

}  // namespace ac
