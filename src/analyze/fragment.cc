#include "analyze/fragment.h"

#include <map>
#include <set>

#include "base/error.h"
#include "ir/rewrite.h"

namespace ac {
namespace {

class Extractor {
 public:
  Extractor(const StepGraph& step, const Region& region) : step_(step), region_(region) {
    out_.graph.name = step.graph.name;
  }

  StepGraph run() {
    for (const NodeId id : region_.nodes) add(id);
    for (const Parameter& output : region_.outputs)
      out_.graph.outputs.push_back({output.name, ids_.at(output.value)});
    verify(out_, "fragment");
    return std::move(out_);
  }

 private:
  void add(NodeId id) {
    Node node = step_.graph[id];
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs) inputs.push_back(from_outside(input));
    if (info(node.op).memory == Memory::state) {
      const auto state = static_cast<std::size_t>(node.integer("state"));
      node.attrs["state"] = static_cast<std::int64_t>(out_.states.size());
      out_.states.push_back(step_.states[state]);
    }
    ids_[id] = copy_node(out_.graph, node, inputs);
  }

  NodeId from_outside(NodeId id) {
    const auto known = ids_.find(id);
    if (known != ids_.end()) return known->second;
    const Node& node = step_.graph[id];
    if (node.inputs.empty()) return ids_[id] = copy_node(out_.graph, node, {});
    return ids_[id] = out_.graph.add_leaf(Op::input, {{"name", name_of(id)}}, node.type, "");
  }

  std::string name_of(NodeId storage) const {
    for (const Parameter& input : region_.inputs)
      if (input.storage == storage) return input.name;
    AC_UNREACHABLE();
  }

  const StepGraph& step_;
  const Region& region_;
  StepGraph out_;
  std::map<NodeId, NodeId> ids_;
};

}  // namespace

StepGraph fragment_of(const StepGraph& step, const Region& region) {
  return Extractor(step, region).run();
}

StepGraph with_fewer_rows(const StepGraph& fragment,
                          const std::function<std::int64_t(std::int64_t)>& rows) {
  const Graph& graph = fragment.graph;
  std::map<NodeId, std::int64_t> fewer;  // leaves, and the size of the axis that shrinks
  std::set<NodeId> read_whole;
  std::set<std::int64_t> sizes;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::linear) continue;
    read_whole.insert(node.inputs[0]);
    for (std::size_t i = 1; i < node.inputs.size(); ++i)
      if (graph[node.inputs[i]].op == Op::weight) fewer[node.inputs[i]] = 0;
    sizes.insert(graph.type(node.inputs[1]).shape[0].constant());
  }
  // A residual has as many columns as the product that it is added to.
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph[id];
    if (node.op != Op::input || read_whole.count(id) > 0 || node.type.shape.empty()) continue;
    const Dim& last = node.type.shape.back();
    if (last.is_constant() && sizes.count(last.constant()) > 0)
      fewer[id] = static_cast<std::int64_t>(node.type.shape.size()) - 1;
  }
  StepGraph out{{graph.name, {}, graph.outputs}, fragment.states};
  try {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const auto shrunk = fewer.find(static_cast<NodeId>(i));
      if (shrunk == fewer.end()) {
        copy_node(out.graph, node, node.inputs);
        continue;
      }
      TensorType type = node.type;
      Dim& size = type.shape[static_cast<std::size_t>(shrunk->second)];
      size = rows(size.constant());
      out.graph.add_leaf(node.op, node.attrs, type, node.module);
    }
    verify(out, "fragment");
  } catch (const Error&) {
    return fragment;  // its shapes do not fit any more
  }
  return out;
}

StepGraph with_fewer_heads(const StepGraph& fragment, std::int64_t kv_heads) {
  const Graph& graph = fragment.graph;
  if (fragment.states.size() != 1 || fragment.states[0].kind != StateKind::kv) return fragment;
  const std::int64_t all = kv_sizes(fragment.states[0]).heads;
  if (all <= kv_heads) return fragment;
  const auto fewer = [&](std::int64_t rows) { return rows / all * kv_heads; };
  StepGraph out{{graph.name, {}, graph.outputs}, fragment.states};
  for (StateTensor& tensor : out.states[0].tensors) tensor.rows = kv_heads;
  // What has the rows of products, through its views: their weights, or, without products, inputs.
  std::set<NodeId> shrinks;
  for (const Node& node : graph.nodes)
    if (node.op == Op::linear) shrinks.insert(node.inputs.begin() + 1, node.inputs.end());
  const bool has_products = !shrinks.empty();
  try {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      Node node = graph.nodes[i];
      const auto id = static_cast<NodeId>(i);
      if (!has_products && node.op == Op::input && node.type.shape.size() > 1) shrinks.insert(id);
      if (node.inputs.empty() && shrinks.count(id) > 0) {
        Dim& rows = node.type.shape[node.op == Op::input ? 1 : 0];
        rows = fewer(rows.constant());
        out.graph.add_leaf(node.op, node.attrs, node.type, node.module);
        continue;
      }
      const bool behind =
          node.op == Op::linear || (!node.inputs.empty() && shrinks.count(node.inputs[0]) > 0);
      if (behind) shrinks.insert(id);
      if (behind && node.op == Op::slice) {
        for (const char* edge : {"start", "end"})
          node.attrs[edge] = Dim(fewer(node.dim(edge).constant()));
      } else if (behind && node.op == Op::reshape) {
        Shape shape = node.type.shape;
        if (shape.size() != 3) return fragment;
        shape[1] = fewer(shape[1].constant());
        node.attrs["shape"] = shape;
      }
      copy_node(out.graph, node, node.inputs);
    }
    verify(out, "fragment");
  } catch (const Error&) {
    return fragment;  // its shapes do not fit any more
  }
  return out;
}

}  // namespace ac
