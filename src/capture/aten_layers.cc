#include <algorithm>
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

// A convolution that looks at one place at a time is a projection of the channels, axis 1.
Results convolution(const AtenCall& call) {
  const NodeId x = call.tensor("input"), weight = call.tensor("weight");
  const std::size_t rank = call.rank(x);
  const Shape kernel = call.shape(weight);
  if (rank < 3 || kernel.size() != rank) bad_input("the input is {}", to_string(call.type(x)));
  const auto all = [&](const char* name, std::int64_t wanted) {
    const auto values = call.integers(name);
    return std::all_of(values.begin(), values.end(),
                       [&](std::int64_t value) { return value == wanted; });
  };
  const Shape places(kernel.begin() + 2, kernel.end());
  if (product(places) != Dim(1))
    bad_input("a kernel of {} mixes neighbours; only kernels of 1 are supported",
              to_string(places));
  if (call.flag("transposed") || !all("stride", 1) || !all("padding", 0))
    bad_input("is only supported with a stride of 1, no padding, and not transposed");
  Builder& build = call.build();
  std::vector<std::int64_t> there{0}, back{0, static_cast<std::int64_t>(rank) - 1};
  for (std::size_t i = 2; i < rank; ++i) {
    there.push_back(static_cast<std::int64_t>(i));
    back.push_back(static_cast<std::int64_t>(i) - 1);
  }
  there.push_back(1);
  const NodeId rows = build.permute(x, there);
  const NodeId matrix = build.reshape(weight, {kernel[0], kernel[1]});
  const std::int64_t groups = call.integer("groups");
  if (groups < 1 || groups > 1024) bad_input("{} groups", groups);
  const auto outputs = kernel[0].divided_by(groups);
  if (!outputs || call.shape(rows).back() != kernel[1] * groups)
    bad_input("{} groups of {} for {}", groups, to_string(kernel), to_string(call.type(x)));
  std::vector<NodeId> parts;
  for (std::int64_t i = 0; i < groups; ++i)
    parts.push_back(
        build.linear(slice_from(call, rows, rank - 1, kernel[1] * i, kernel[1] * (i + 1), 1),
                     slice_from(call, matrix, 0, *outputs * i, *outputs * (i + 1), 1)));
  NodeId result = groups == 1 ? parts[0] : build.concat(parts, static_cast<std::int64_t>(rank) - 1);
  if (call.has("bias")) result = build.binary(Op::add, result, call.tensor("bias"));
  return {build.permute(result, back)};
}

// Each group of channels, axis 1, is normalised by itself.
Results group_norm(const AtenCall& call) {
  const NodeId x = call.tensor("input");
  const Shape shape = call.shape(x);
  const std::int64_t groups = call.integer("group");
  if (shape.size() < 2 || groups < 1) bad_input("{} groups of {}", groups, to_string(shape));
  const auto size = product(Shape(shape.begin() + 1, shape.end())).divided_by(groups);
  if (!size) bad_input("{} groups of {}", groups, to_string(shape));
  Builder& build = call.build();
  const NodeId split = build.reshape(x, {shape[0], groups, *size});
  NodeId result = build.reshape(build.layer_norm({split}, call.number("eps")), shape);
  Shape channels(shape.size() - 1, Dim(1));
  channels[0] = shape[1];
  for (const auto& [name, op] : {std::pair{"weight", Op::mul}, {"bias", Op::add}})
    if (call.has(name))
      result = build.binary(op, result, build.reshape(call.tensor(name), channels));
  return {result, kNoResult, kNoResult};
}

Results log_softmax(const AtenCall& call) {
  NodeId x = call.tensor("self");
  if (call.flag("half_to_float")) x = call.build().cast(x, DType::f32);
  Builder& build = call.build();
  const auto axis = static_cast<std::int64_t>(call.axis("dim", call.rank(x)));
  const NodeId below = build.binary(Op::sub, x, build.reduce(Op::amax, x, {axis}, true));
  const NodeId total = build.reduce(Op::sum, build.unary(Op::exp, below), {axis}, true);
  return {build.binary(Op::sub, below, build.unary(Op::log, total))};
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
  const auto fits = [&](NodeId x) { return heads(x) == heads(q) || heads(x) == Dim(1); };
  if (!shares_heads && !(fits(k) && fits(v)))
    bad_input("{} query heads, but {} key heads and {} value heads without enable_gqa",
              heads(q).str(), heads(k).str(), heads(v).str());
  const auto mask = call.maybe_tensor("attn_mask");
  if (call.flag("is_causal")) {
    if (mask) bad_input("has both a mask and is_causal");
    if (heads(k) != heads(v))
      k = repeat_heads(call, k, heads(q)), v = repeat_heads(call, v, heads(q));
    return causal_attention(call, q, k, v, scale, 0, 0);
  }
  if (heads(q) != heads(k)) k = repeat_heads(call, k, heads(q));
  if (heads(q) != heads(v)) v = repeat_heads(call, v, heads(q));
  return masked_attention(call, q, k, v, mask, scale);
}

}  // namespace

std::vector<AtenOp> aten_layer_ops() {
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
      {"aten._native_batch_norm_legit_no_training.default",
       "input:tensor weight:tensor? bias:tensor? running_mean:tensor running_var:tensor "
       "momentum:number eps:number",
       batch_norm},
      {"aten.convolution.default",
       "input:tensor weight:tensor bias:tensor? stride:ints padding:ints dilation:ints "
       "transposed:bool output_padding:ints groups:int",
       convolution},
      {"aten.native_group_norm.default",
       "input:tensor weight:tensor? bias:tensor? N:int C:int HxW:int group:int eps:number",
       group_norm},
      {"aten._log_softmax.default", "self:tensor dim:int half_to_float:bool", log_softmax},
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
