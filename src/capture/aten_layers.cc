#include <cmath>
#include <numeric>

#include "base/error.h"
#include "capture/aten.h"

namespace ac {
namespace {

using Results = std::vector<NodeId>;

NodeId swap_last_two(const AtenCall& call, NodeId x) {
  std::vector<std::int64_t> axes(call.rank(x));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes.at(axes.size() - 1), axes.at(axes.size() - 2));
  return call.build().permute(x, std::move(axes));
}

Results embedding(const AtenCall& call) {
  const NodeId table = call.tensor("weight");
  if (call.rank(table) != 2) bad_input("the table is {}", to_string(call.type(table)));
  return {call.build().embedding(table, call.tensor("indices"))};
}

Results linear(const AtenCall& call) {
  std::vector<NodeId> inputs{call.tensor("input"), call.tensor("weight")};
  if (call.has("bias")) inputs.push_back(call.tensor("bias"));
  return {call.build().add(Op::linear, inputs)};
}

// With one axis, a tensor stands for a row (on the left) or a column (on the right).
Results matmul(const AtenCall& call, NodeId a, NodeId b) {
  if (call.rank(a) == 0 || call.rank(b) == 0) bad_input("needs tensors with axes");
  Builder& build = call.build();
  const bool row = call.rank(a) == 1, column = call.rank(b) == 1;
  if (row) a = build.reshape(a, {1, call.shape(a)[0]});
  if (column) b = build.reshape(b, {call.shape(b)[0], 1});
  const NodeId result = build.matmul(a, b);
  Shape shape = call.shape(result);
  if (column) shape.pop_back();
  if (row) shape.erase(column ? shape.end() - 1 : shape.end() - 2);
  return {build.reshape(result, shape)};
}

auto matmul_of(const char* right, std::size_t rank) {
  return [right, rank](const AtenCall& call) -> Results {
    const NodeId a = call.tensor("self"), b = call.tensor(right);
    if (rank != 0 && (call.rank(a) != rank || call.rank(b) != rank))
      bad_input("needs tensors of {} axes, got {} and {}", rank, to_string(call.type(a)),
                to_string(call.type(b)));
    return matmul(call, a, b);
  };
}

// beta * self + alpha * (a @ b)
auto add_matmul(const char* left, const char* right) {
  return [left, right](const AtenCall& call) -> Results {
    const NodeId result = matmul(call, call.tensor(left), call.tensor(right))[0];
    const double beta = call.number("beta");
    const NodeId scaled = times(call, result, call.number("alpha"));
    if (beta == 0) return {scaled};  // PyTorch then does not even look at self
    return {elementwise(call, Op::add, scaled, times(call, call.tensor("self"), beta))};
  };
}

auto reduce(Op op) {
  return [op](const AtenCall& call) -> Results {
    NodeId x = call.tensor("self");
    if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
    return {call.build().reduce(op, x, call.axes("dim", call.rank(x)), call.flag("keepdim"))};
  };
}

auto reduce_all(Op op) {
  return [op](const AtenCall& call) -> Results {
    NodeId x = call.tensor("self");
    if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
    std::vector<std::int64_t> axes(call.rank(x));
    std::iota(axes.begin(), axes.end(), 0);
    return {call.build().reduce(op, x, std::move(axes), false)};
  };
}

Results amax(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  return {call.build().reduce(Op::amax, x, call.axes("dim", call.rank(x)), call.flag("keepdim"))};
}

NodeId mean_of(const AtenCall& call, bool keep) {
  const NodeId x = call.tensor("self");
  return call.build().reduce(Op::mean, x, call.axes("dim", call.rank(x)), keep);
}

NodeId variance(const AtenCall& call) {
  const NodeId x = call.tensor("self");
  const auto axes = call.axes("dim", call.rank(x));
  Dim count(1);
  for (const std::int64_t axis : axes)
    count = count * call.shape(x)[static_cast<std::size_t>(axis)];
  if (!count.is_constant()) bad_input("over {} elements", count.str());
  const double correction = call.has("correction") ? call.number("correction") : 1;
  const double divisor = static_cast<double>(count.constant()) - correction;
  if (!(divisor > 0)) bad_input("over {} elements, less {}", count.constant(), correction);
  Builder& build = call.build();
  const NodeId centred = build.binary(Op::sub, x, mean_of(call, true));
  const NodeId squares = build.binary(Op::mul, centred, centred);
  return times(call, build.reduce(Op::sum, squares, axes, call.flag("keepdim")), 1 / divisor);
}

Results variance_and_mean(const AtenCall& call) {
  return {variance(call), mean_of(call, call.flag("keepdim"))};
}

Results deviation(const AtenCall& call) { return {call.build().unary(Op::sqrt, variance(call))}; }

// (sum |x|^ord)^(1 / ord) for the orders that people normalise by.
Results vector_norm(const AtenCall& call) {
  NodeId x = call.tensor("self");
  if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
  const double order = call.number("ord");
  const auto axes = call.axes("dim", call.rank(x));
  const bool keep = call.flag("keepdim");
  Builder& build = call.build();
  if (order == 2) {
    const NodeId squares = build.binary(Op::mul, x, x);
    return {build.unary(Op::sqrt, build.reduce(Op::sum, squares, axes, keep))};
  }
  const NodeId sizes = build.unary(Op::abs, x);
  if (order == 1) return {build.reduce(Op::sum, sizes, axes, keep)};
  if (order == INFINITY) return {build.reduce(Op::amax, sizes, axes, keep)};
  bad_input("a norm of order {}: only 1, 2 and inf are supported", order);
}

// In evaluation mode: a scale and a shift for each channel, which is axis 1.
Results batch_norm(const AtenCall& call) {
  const NodeId x = call.tensor("input");
  if (call.rank(x) < 2) bad_input("the input is {}", to_string(call.type(x)));
  Builder& build = call.build();
  const DType dtype = call.type(x).dtype;
  const Dim channels = call.shape(x)[1];
  const std::size_t rank = call.rank(x);
  const auto each = [&](NodeId value) {  // [channels, 1, ..., 1]
    if (call.shape(value) != Shape{channels})
      bad_input("{} for {} channels", to_string(call.type(value)), channels.str());
    Shape shape(rank - 1, Dim(1));
    shape[0] = channels;
    return build.reshape(build.cast(value, dtype), shape);
  };
  const NodeId variance = each(call.tensor("running_var"));
  const NodeId root = build.unary(
      Op::sqrt, build.binary(Op::add, variance, build.scalar(dtype, call.number("eps"))));
  NodeId result = build.binary(Op::sub, x, each(call.tensor("running_mean")));
  result = build.binary(Op::div, result, root);
  if (call.has("weight")) result = build.binary(Op::mul, result, each(call.tensor("weight")));
  if (call.has("bias")) result = build.binary(Op::add, result, each(call.tensor("bias")));
  return {result, kNoResult, kNoResult};
}

Results softmax(const AtenCall& call) {
  NodeId x = call.tensor("self");
  if (const auto dtype = call.maybe_dtype("dtype")) x = call.build().cast(x, *dtype);
  return {call.build().softmax(x, static_cast<std::int64_t>(call.axis("dim", call.rank(x))))};
}

Results raw_softmax(const AtenCall& call) {
  NodeId x = call.tensor("self");
  if (call.flag("half_to_float")) x = call.build().cast(x, DType::f32);
  return {call.build().softmax(x, static_cast<std::int64_t>(call.axis("dim", call.rank(x))))};
}

NodeId norm_input(const AtenCall& call) {
  const NodeId x = call.tensor("input");
  const Shape& normalised = call.dims("normalized_shape");
  if (call.rank(x) == 0 || normalised != Shape{call.shape(x).back()})
    bad_input("normalises {} of {}; only the last axis is supported", to_string(normalised),
              to_string(call.shape(x)));
  return x;
}

NodeId rms_norm(const AtenCall& call) {
  const NodeId x = norm_input(call);
  std::vector<NodeId> inputs{x};
  if (const auto weight = call.maybe_tensor("weight")) inputs.push_back(*weight);
  // Without eps, PyTorch takes float32's step for half types too: it computes in float32.
  const double eps = call.has("eps") ? call.number("eps") : 0x1p-23;
  return call.build().add(Op::rms_norm, inputs, {{"eps", eps}, {"weight_offset", 0.0}});
}

NodeId layer_norm(const AtenCall& call) {
  const NodeId x = norm_input(call);
  std::vector<NodeId> inputs{x};
  auto weight = call.maybe_tensor("weight");
  const auto bias = call.maybe_tensor("bias");
  if (!weight && bias)
    weight = call.build().expand(call.build().scalar(call.type(x).dtype, 1), call.shape(*bias));
  if (weight) inputs.push_back(*weight);
  if (bias) inputs.push_back(*bias);
  return call.build().layer_norm(std::move(inputs), call.number("eps"));
}

// Our attention has the tokens first and no batch: [1, heads, S, d] -> [S, heads, d] and back.
NodeId causal_attention(const AtenCall& call, NodeId q, NodeId k, NodeId v, double scale,
                        std::int64_t window, double softcap) {
  Builder& build = call.build();
  const auto tokens_first = [&](NodeId x, const char* name) {
    const Shape& shape = call.shape(x);
    const std::size_t rank = shape.size();
    bool fits = rank >= 2 && shape[rank - 2] == Dim(Symbol::S);
    for (std::size_t i = 0; i + 3 < rank; ++i) fits = fits && shape[i] == Dim(1);
    if (!fits)
      bad_input("{} is {}, expected [1, heads, S, d]: one sequence, all of its tokens", name,
                to_string(shape));
    const Dim heads = rank >= 3 ? shape[rank - 3] : Dim(1);
    return build.permute(build.reshape(x, {heads, shape[rank - 2], shape[rank - 1]}), {1, 0, 2});
  };
  Shape shape = call.shape(q);
  q = tokens_first(q, "q");
  k = tokens_first(k, "k");
  v = tokens_first(v, "v");
  const NodeId attended = build.attention(q, k, v, scale, window, softcap);
  shape.back() = call.shape(attended).back();
  return build.reshape(build.permute(attended, {1, 0, 2}), shape);
}

Results attention(const AtenCall& call) {
  const NodeId q = call.tensor("q");
  if (call.rank(q) != 4) bad_input("q is {}, expected [1, heads, S, d]", to_string(call.shape(q)));
  if (!call.flag("causal")) bad_input("is not causal: every token would see later ones");
  return {causal_attention(call, q, call.tensor("k"), call.tensor("v"), call.number("scale"),
                           call.integer("window"), call.number("softcap"))};
}

// Key-value heads repeated for the query heads that share them.
NodeId repeat_heads(const AtenCall& call, NodeId x, const Dim& heads) {
  Shape shape = call.shape(x);
  Dim& own = shape[shape.size() - 3];
  if (own == heads) return x;
  const auto group = heads.divided_by(own);
  if (!group) bad_input("{} heads share {} key-value heads", heads.str(), own.str());
  Shape spread = shape, repeated = shape;
  spread.insert(spread.end() - 2, Dim(1));
  repeated.insert(repeated.end() - 2, *group);
  own = heads;
  Builder& build = call.build();
  return build.reshape(build.expand(build.reshape(x, spread), repeated), shape);
}

// Spelled out; whether its mask is causal is for later passes to find out.
NodeId masked_attention(const AtenCall& call, NodeId q, NodeId k, NodeId v,
                        std::optional<NodeId> mask, double scale) {
  Builder& build = call.build();
  const DType dtype = call.type(q).dtype;
  NodeId scores = times(call, build.matmul(q, swap_last_two(call, k)), scale);
  if (mask && call.type(*mask).dtype == DType::boolean)
    scores = build.add(Op::where, {*mask, scores, build.scalar(dtype, -INFINITY)});
  else if (mask)
    scores = build.binary(Op::add, scores, *mask);
  const NodeId weights = build.softmax(scores, static_cast<std::int64_t>(call.rank(scores)) - 1);
  return build.matmul(weights, v);
}

NodeId sdpa(const AtenCall& call, bool shares_heads) {
  NodeId q = call.tensor("query"), k = call.tensor("key"), v = call.tensor("value");
  if (call.number("dropout_p") != 0)
    bad_input("draws random numbers: capture the model in evaluation mode (model.eval())");
  for (const NodeId x : {q, k, v})
    if (call.rank(x) < 2) bad_input("an input is {}", to_string(call.type(x)));
  double scale;
  if (call.has("scale")) {
    scale = call.number("scale");
  } else {
    const Dim& features = call.shape(q).back();
    if (!features.is_constant() || features.constant() < 1)
      bad_input("heads of {} features", features.str());
    scale = 1 / std::sqrt(static_cast<double>(features.constant()));
  }
  if (scale < 0) q = call.build().unary(Op::neg, q), scale = -scale;
  const auto heads = [&](NodeId x) {
    return call.rank(x) < 3 ? Dim(1) : call.shape(x)[call.rank(x) - 3];
  };
  if (!shares_heads && (heads(q) != heads(k) || heads(q) != heads(v)))
    bad_input("{} query heads, but {} key heads and {} value heads without enable_gqa",
              heads(q).str(), heads(k).str(), heads(v).str());
  const auto mask = call.maybe_tensor("attn_mask");
  if (call.flag("is_causal")) {
    if (mask) bad_input("has both a mask and is_causal");
    return causal_attention(call, q, k, v, scale, 0, 0);
  }
  if (heads(q) != heads(k)) k = repeat_heads(call, k, heads(q));
  if (heads(q) != heads(v)) v = repeat_heads(call, v, heads(q));
  return masked_attention(call, q, k, v, mask, scale);
}

}  // namespace

std::vector<AtenOp> aten_layer_ops() {
  constexpr auto kVariance = "self:tensor dim:ints? correction:number? keepdim:bool";
  constexpr auto kReduce = "self:tensor dim:ints? keepdim:bool dtype:dtype?";
  constexpr auto kAddMatmul = "self:tensor {0}1:tensor {0}2:tensor beta:number alpha:number";
  return {
      {"aten.embedding.default",
       "weight:tensor indices:tensor padding_idx:int scale_grad_by_freq:bool sparse:bool",
       embedding},
      {"aten.linear.default", "input:tensor weight:tensor bias:tensor?", linear},
      {"aten.matmul.default", "self:tensor other:tensor", matmul_of("other", 0)},
      {"aten.mm.default", "self:tensor mat2:tensor", matmul_of("mat2", 2)},
      {"aten.bmm.default", "self:tensor mat2:tensor", matmul_of("mat2", 3)},
      {"aten.addmm.default", fmt::format(kAddMatmul, "mat"), add_matmul("mat1", "mat2")},
      {"aten.baddbmm.default", fmt::format(kAddMatmul, "batch"), add_matmul("batch1", "batch2")},
      {"aten.sum.default", "self:tensor dtype:dtype?", reduce_all(Op::sum)},
      {"aten.sum.dim_IntList", kReduce, reduce(Op::sum)},
      {"aten.mean.default", "self:tensor dtype:dtype?", reduce_all(Op::mean)},
      {"aten.mean.dim", kReduce, reduce(Op::mean)},
      {"aten.amax.default", "self:tensor dim:ints keepdim:bool", amax},
      {"aten.linalg_vector_norm.default",
       "self:tensor ord:number dim:ints? keepdim:bool dtype:dtype?", vector_norm},
      {"aten._native_batch_norm_legit_no_training.default",
       "input:tensor weight:tensor? bias:tensor? running_mean:tensor running_var:tensor "
       "momentum:number eps:number",
       batch_norm},
      {"aten.var.correction", kVariance,
       [](const AtenCall& call) -> Results { return {variance(call)}; }},
      {"aten.var_mean.correction", kVariance, variance_and_mean},
      {"aten.std.correction", kVariance, deviation},
      {"aten.softmax.int", "self:tensor dim:int dtype:dtype?", softmax},
      {"aten._softmax.default", "self:tensor dim:int half_to_float:bool", raw_softmax},
      {"aten.rms_norm.default", "input:tensor normalized_shape:ints weight:tensor? eps:number?",
       [](const AtenCall& call) -> Results { return {rms_norm(call)}; }},
      {"aten._fused_rms_norm.default",
       "input:tensor normalized_shape:ints weight:tensor? eps:number?",
       [](const AtenCall& call) -> Results { return {rms_norm(call), kNoResult}; }},
      {"aten.layer_norm.default",
       "input:tensor normalized_shape:ints weight:tensor? bias:tensor? eps:number "
       "cudnn_enable:bool",
       [](const AtenCall& call) -> Results { return {layer_norm(call)}; }},
      {"aten.native_layer_norm.default",
       "input:tensor normalized_shape:ints weight:tensor? bias:tensor? eps:number",
       [](const AtenCall& call) -> Results { return {layer_norm(call), kNoResult, kNoResult}; }},
      {"aten.scaled_dot_product_attention.default",
       "query:tensor key:tensor value:tensor attn_mask:tensor? dropout_p:number is_causal:bool "
       "scale:number? enable_gqa:bool",
       [](const AtenCall& call) -> Results { return {sdpa(call, call.flag("enable_gqa"))}; }},
      {"aten._scaled_dot_product_flash_attention_for_cpu.default",
       "query:tensor key:tensor value:tensor dropout_p:number is_causal:bool attn_mask:tensor? "
       "scale:number?",
       [](const AtenCall& call) -> Results { return {sdpa(call, false), kNoResult}; }},
      {"agentcompile.attention.default",
       "q:tensor k:tensor v:tensor scale:number causal:bool window:int softcap:number", attention},
  };
}

}  // namespace ac
