#include "ir/incrementalise.h"

#include <algorithm>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "ir/shape.h"
#include "ir/verify.h"

namespace ac {
namespace {

const Dim kS(Symbol::S), kT(Symbol::T);
// Whether row i of the result depends on row i of the inputs alone, for a node of the normal form.
class RowProof {
 public:
  explicit RowProof(const Graph& graph) : graph_(graph) {}

  void check(NodeId id) const {
    const Node& node = graph_[id];
    const Shape& shape = node.type.shape;
    bool rows = has_rows(node.type);
    for (const NodeId input : node.inputs) rows = rows || has_rows(graph_.type(input));
    if (!rows) return;
    if (shape.empty() || shape[0] != kS) refuse(id, "the token axis is not first");
    for (std::size_t i = 1; i < shape.size(); ++i)
      if (shape[i].uses(Symbol::S)) refuse(id, "a second axis depends on the number of tokens");
    check_op(id, node);
  }

 private:
  static bool has_rows(const TensorType& type) {
    return std::any_of(type.shape.begin(), type.shape.end(),
                       [](const Dim& dim) { return dim.uses(Symbol::S); });
  }

  [[noreturn]] void refuse(NodeId id, const std::string& why) const {
    bad_input("{}: cannot be computed token by token: {}", describe(graph_, id), why);
  }

  void require(bool holds, NodeId id, const char* why) const {
    if (!holds) refuse(id, why);
  }

  void check_op(NodeId id, const Node& node) const {
    const auto axis_is_not_tokens = [&](std::int64_t axis) {
      require(axis != 0, id, "it works along the token axis");
    };
    const auto has_no_rows = [&](std::size_t input, const char* why) {
      require(!has_rows(graph_.type(node.inputs[input])), id, why);
    };
    const OpInfo& op = info(node.op);
    require(op.memory != Memory::state, id, "it already has a state");
    if (in_a_step(node.op) != node.op) return;
    for (const std::int64_t axis : reduced_axes(graph_, node)) axis_is_not_tokens(axis);
    if (op.over == Over::each)
      for (const NodeId input : node.inputs)
        require(!has_rows(graph_.type(input)) ||
                    graph_.type(input).shape.size() == node.type.shape.size(),
                id, "broadcasting moves the token axis");
    if (op.over == Over::last)
      for (std::size_t i = 1; i < node.inputs.size(); ++i)
        has_no_rows(i, "a weight depends on tokens");
    switch (op.rule) {
      case ShapeRule::concat:
      case ShapeRule::slice:
        return axis_is_not_tokens(node.integer("axis"));
      case ShapeRule::embedding:
        return has_no_rows(0, "the table depends on tokens");
      case ShapeRule::rope:
        return has_no_rows(2, "a frequency depends on tokens");
      case ShapeRule::reshape:
        return require(graph_.type(node.inputs[0]).shape[0] == kS, id, "it moves the token axis");
      case ShapeRule::permute:
        return require(node.integers("axes")[0] == 0, id, "it moves the token axis");
      case ShapeRule::triangle:
        refuse(id, "it compares positions of tokens");
      case ShapeRule::declared:
      case ShapeRule::positions:
      case ShapeRule::expand:
        return;
      default:
        AC_ASSERT(op.over != Over::own);  // else the table has said enough
    }
  }

  const Graph& graph_;
};

Shape substitute(Shape shape, Symbol symbol, const Dim& value) {
  for (Dim& dim : shape) dim = dim.substitute(symbol, value);
  return shape;
}

// The same node with a symbol replaced in its attributes and (for leaves) its type.
Node substitute(Node node, Symbol symbol, const Dim& value) {
  node.type.shape = substitute(node.type.shape, symbol, value);
  for (auto& [name, attr] : node.attrs) {
    if (auto* dim = std::get_if<Dim>(&attr)) *dim = dim->substitute(symbol, value);
    if (auto* dims = std::get_if<Shape>(&attr)) *dims = substitute(*dims, symbol, value);
  }
  return node;
}

// Copies the parts of a step that the last token's outputs need, with one row instead of T where
// that is enough.
class LastRow {
 public:
  explicit LastRow(const Graph& graph)
      : in_(graph),
        needs_all_(graph.nodes.size()),
        all_(graph.nodes.size(), -1),
        last_(graph.nodes.size(), -1) {
    // A state needs every row of what is appended, and all that leads there.
    for (std::size_t i = graph.nodes.size(); i-- > 0;) {
      const bool state = info(graph.nodes[i].op).memory == Memory::state;
      if (state) needs_all_[i] = true;
      if (needs_all_[i])
        for (const NodeId input : graph.nodes[i].inputs)
          needs_all_[static_cast<std::size_t>(input)] = true;
    }
  }

  Graph run() {
    out_.name = in_.name;
    out_.limit = in_.limit;
    // Every state is written, also one that no logit depends on.
    for (std::size_t i = 0; i < in_.nodes.size(); ++i) {
      const Op op = in_.nodes[i].op;
      if (needs_all_[i] || op == Op::input) all_rows(static_cast<NodeId>(i));
    }
    for (std::size_t i = 0; i < in_.nodes.size(); ++i)
      if (!needs_all_[i]) one_row(static_cast<NodeId>(i));
    for (const Output& output : in_.outputs)
      out_.outputs.push_back({output.name, last_row(output.node)});
    return out_;
  }

 private:
  static bool has_rows(const Node& node) {
    return !node.type.shape.empty() && node.type.shape[0] == kT;
  }

  void all_rows(NodeId id) {
    std::vector<NodeId> inputs;
    for (const NodeId input : in_[id].inputs)
      inputs.push_back(all_[static_cast<std::size_t>(input)]);
    all_[static_cast<std::size_t>(id)] = copy_node(out_, in_[id], inputs);
  }

  void one_row(NodeId id) {
    const Node& node = in_[id];
    if (node.op == Op::input) return;
    if (node.op == Op::positions || !has_rows(node)) {
      std::vector<NodeId> inputs;
      for (const NodeId input : node.inputs) inputs.push_back(constant(input));
      all_[static_cast<std::size_t>(id)] = copy_node(out_, node, inputs);
      return;
    }
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs)
      inputs.push_back(has_rows(in_[input]) ? last_row(input) : constant(input));
    last_[static_cast<std::size_t>(id)] = copy_node(out_, substitute(node, Symbol::T, 1), inputs);
  }

  NodeId constant(NodeId id) const { return all_[static_cast<std::size_t>(id)]; }

  NodeId last_row(NodeId id) {
    NodeId& row = last_[static_cast<std::size_t>(id)];
    if (row < 0) {
      Builder builder(out_);
      builder.set_origin(in_[id]);
      row = builder.slice(all_[static_cast<std::size_t>(id)], 0, kT - 1, kT);
    }
    return row;
  }

  const Graph& in_;
  Graph out_;
  std::vector<bool> needs_all_;
  std::vector<NodeId> all_, last_;  // ids in out_
};

}  // namespace

StepGraph incrementalise(const Graph& graph, KvStorage storage) {
  verify(graph, "incrementalise");
  const RowProof proof(graph);
  StepGraph step;
  step.graph.name = graph.name;
  step.graph.limit = graph.limit;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    proof.check(id);
    Node node = substitute(graph[id], Symbol::S, kT);
    const std::vector<NodeId> inputs = node.inputs;
    if (const Op op = in_a_step(node.op); op != node.op) {
      step.states.push_back(state_of(graph, node, storage));
      node.op = op;
      node.attrs["state"] = std::ssize(step.states) - 1;
    }
    copy_node(step.graph, node, inputs);
  }
  for (const Output& output : graph.outputs) {
    if (graph.type(output.node).shape.empty() || graph.type(output.node).shape[0] != kS)
      bad_input("output \"{}\" is {}: it has no row for each token", output.name,
                to_string(graph.type(output.node)));
    step.graph.outputs.push_back(output);
  }
  verify(step, "incrementalise");
  return step;
}

StepGraph decode_instance(const StepGraph& step) {
  StepGraph result{{step.graph.name, {}, step.graph.outputs, step.graph.limit}, step.states};
  for (const Node& node : step.graph.nodes)
    copy_node(result.graph, substitute(node, Symbol::T, 1), node.inputs);
  verify(result, "decode instance");
  return result;
}

StepGraph prefill_instance(const StepGraph& step) {
  StepGraph result{LastRow(step.graph).run(), step.states};
  verify(result, "prefill instance");
  return result;
}

StepGraph all_rows_instance(const StepGraph& step) {
  StepGraph result = step;
  Builder builder(result.graph);
  for (Output& output : result.graph.outputs)
    output.node = builder.slice(output.node, 0, kT - 1, kT);
  verify(result, "instance with all rows");
  return result;
}

}  // namespace ac
