#include <algorithm>
#include <map>

#include "base/error.h"
#include "ir/normalise.h"
#include "ir/normalise/passes.h"
#include "ir/verify.h"

namespace ac {
namespace {

class Retyper {
 public:
  Retyper(const Graph& graph, DType from, DType to)
      : in_(graph), from_(from), to_(to), builder_(out_), of_weights_(graph.nodes.size()) {}

  Graph run() {
    out_.name = in_.name;
    out_.limit = in_.limit;
    for (std::size_t i = 0; i < in_.nodes.size(); ++i) {
      const Node& node = in_.nodes[i];
      of_weights_[i] = node.op == Op::weight;
      for (const NodeId input : node.inputs) of_weights_[i] = of_weights_[i] || has_weights(input);
      builder_.set_origin(node);
      mapped_.push_back(copy(node, of_weights_[i] ? to_ : apart()));
    }
    for (const Output& output : in_.outputs)
      out_.outputs.push_back({output.name, mapped_[static_cast<std::size_t>(output.node)]});
    return std::move(out_);
  }

 private:
  bool has_weights(NodeId id) const { return of_weights_[static_cast<std::size_t>(id)]; }

  // What becomes of the type in values that no weight goes into: angles of positions need their
  // float32, whatever the model computes in.
  DType apart() const { return from_ == DType::f32 ? DType::f32 : to_; }

  NodeId copy(const Node& node, DType to) {
    Node changed = node;
    if (changed.type.dtype == from_) changed.type.dtype = to;
    if (node.op == Op::constant) return constant(changed);
    if (const auto dtype = changed.attrs.find("dtype"); dtype != changed.attrs.end())
      if (std::get<DType>(dtype->second) == from_) dtype->second = to;
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs) {
      NodeId given = mapped_[static_cast<std::size_t>(input)];
      // Where the two kinds of values meet.
      const bool meets = in_.type(input).dtype == from_ && node.op != Op::rope;
      if (meets) given = builder_.cast(given, to);
      inputs.push_back(given);
    }
    if (node.op == Op::cast)
      return builder_.cast(inputs[0], std::get<DType>(changed.attrs["dtype"]));
    return copy_node(out_, changed, std::move(inputs));
  }

  NodeId constant(const Node& node) {
    std::vector<double> data = node.data();
    for (double& item : data) item = round_to(node.type.dtype, item);
    return out_.add_leaf(Op::constant,
                         {{"data", std::make_shared<const std::vector<double>>(std::move(data))}},
                         node.type, node.module, node.source);
  }

  const Graph& in_;
  const DType from_, to_;
  Graph out_;
  Builder builder_;
  std::vector<bool> of_weights_;
  std::vector<NodeId> mapped_;
};

}  // namespace

DType main_dtype(const Graph& graph) {
  std::map<DType, double> elements;
  for (const Node& node : graph.nodes) {
    const Dim count = product(node.type.shape);
    if (node.op == Op::weight && is_float(node.type.dtype) && count.is_constant())
      elements[node.type.dtype] += static_cast<double>(count.constant());
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most == elements.end() ? DType::f32 : most->first;
}

Graph compute_in(const Graph& normal, DType dtype) {
  AC_ASSERT(is_float(dtype));
  const DType own = main_dtype(normal);
  if (own == dtype) return normal;
  const Graph result = rewrite(Retyper(normal, own, dtype).run(), normal_form_rules());
  verify(result, "compute_in");
  return result;
}

}  // namespace ac
