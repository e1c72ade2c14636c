#include "ir/rewrite.h"

#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

namespace ac {
namespace {

// A key that is equal exactly when two nodes compute the same value.
std::string value_key(const Node& node) {
  std::string key = fmt::format("{} {}", static_cast<int>(node.op), to_string(node.type));
  for (const NodeId input : node.inputs) key += fmt::format(" %{}", input);
  for (const auto& [name, value] : node.attrs) {
    key += ' ' + name + '=';
    if (const auto* number = std::get_if<double>(&value)) {
      key.append(reinterpret_cast<const char*>(number), sizeof *number);
    } else if (const auto* data = std::get_if<Data>(&value)) {
      key.append(reinterpret_cast<const char*>((*data)->data()), (*data)->size() * sizeof(double));
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      key += fmt::format("{}:{}", text->size(), *text);
    } else if (const auto* dims = std::get_if<Shape>(&value)) {
      key += to_string(*dims);
    } else if (const auto* dim = std::get_if<Dim>(&value)) {
      key += dim->str();
    } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
      for (const std::int64_t item : *integers) key += fmt::format("{},", item);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      key += fmt::format("{}", *integer);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      key += *flag ? "true" : "false";
    } else {
      key += short_name(std::get<DType>(value));
    }
  }
  return key;
}

Graph sweep(const Graph& graph, const std::vector<Rule>& rules, bool& changed) {
  Graph out{graph.name, {}, {}, graph.limit};
  Builder builder(out);
  std::vector<NodeId> mapped(graph.nodes.size());
  std::unordered_map<std::string, NodeId> known;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Node node = graph.nodes[i];
    for (NodeId& input : node.inputs) input = mapped[static_cast<std::size_t>(input)];
    builder.set_origin(node);
    std::optional<NodeId> replaced;
    for (const Rule& rule : rules)
      if ((replaced = rule(builder, out, node))) break;
    if (replaced) {
      changed = true;
      AC_ASSERT(out.type(*replaced) == node.type);
      mapped[i] = *replaced;
      continue;
    }
    // Equal state-writing nodes are two writes, not one.
    const bool mergeable = info(node.op).memory != Memory::state;
    const auto next = static_cast<NodeId>(out.nodes.size());
    const auto [entry, is_new] =
        mergeable ? known.try_emplace(value_key(node), next) : std::pair{known.end(), true};
    mapped[i] = is_new ? next : entry->second;
    if (is_new) out.nodes.push_back(std::move(node));
  }
  for (const Output& output : graph.outputs)
    out.outputs.push_back({output.name, mapped[static_cast<std::size_t>(output.node)]});
  return prune(out);
}

bool same_attr(const Attr& a, const Attr& b) {
  const auto near = [](double x, double y) {
    return x == y || (std::isnan(x) && std::isnan(y)) ||
           std::fabs(x - y) <= 1e-6 * std::fmax(std::fabs(x), std::fabs(y));
  };
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return near(*x, std::get<double>(b));
  if (const auto* x = std::get_if<Data>(&a)) {
    const auto &left = **x, &right = *std::get<Data>(b);
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), near);
  }
  return a == b;
}

}  // namespace

Graph rewrite(const Graph& graph, const std::vector<Rule>& rules) {
  Graph current = prune(graph);
  // Every rule makes the graph simpler, so this ends; the bound only turns a bug into a message.
  for (int sweeps = 0; sweeps < 200; ++sweeps) {
    bool changed = false;
    current = sweep(current, rules, changed);
    if (!changed) return current;
  }
  AC_UNREACHABLE();
}

Graph prune(const Graph& graph) {
  Graph out{graph.name, {}, {}, graph.limit};
  std::vector<NodeId> mapped(graph.nodes.size(), -1);
  // An explicit stack: captured graphs may be deep.
  std::vector<std::pair<NodeId, std::size_t>> open;
  const auto visit = [&](NodeId root) {
    open.push_back({root, 0});
    while (!open.empty()) {
      auto& [id, next] = open.back();
      const Node& node = graph[id];
      if (mapped[static_cast<std::size_t>(id)] >= 0) {
        open.pop_back();
      } else if (next < node.inputs.size()) {
        const NodeId input = node.inputs[next++];
        open.push_back({input, 0});
      } else {
        Node copy = node;
        for (NodeId& input : copy.inputs) input = mapped[static_cast<std::size_t>(input)];
        mapped[static_cast<std::size_t>(id)] = static_cast<NodeId>(out.nodes.size());
        out.nodes.push_back(std::move(copy));
        open.pop_back();
      }
    }
  };
  // Inputs are part of the interface: they stay, and come first, used or not.
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op == Op::input) visit(static_cast<NodeId>(i));
  for (const Output& output : graph.outputs) {
    visit(output.node);
    out.outputs.push_back({output.name, mapped[static_cast<std::size_t>(output.node)]});
  }
  return out;
}

NodeId copy_node(Graph& out, const Node& node, std::vector<NodeId> inputs) {
  const ShapeRule rule = info(node.op).rule;
  if (rule == ShapeRule::declared || rule == ShapeRule::positions)
    return out.add_leaf(node.op, node.attrs, node.type, node.module, node.source);
  return out.add(node.op, std::move(inputs), node.attrs, node.module, node.source);
}

std::string first_difference(const Graph& a, const Graph& b) {
  const std::size_t common = std::min(a.nodes.size(), b.nodes.size());
  for (std::size_t i = 0; i < common; ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    const auto id = static_cast<NodeId>(i);
    const auto differ = [&](const char* what) {
      return fmt::format("{} differs: {} : {} against {} : {}", what, describe(a, id),
                         to_string(x.type), describe(b, id), to_string(y.type));
    };
    if (x.op != y.op) return differ("op");
    if (x.type != y.type) return differ("type");
    if (x.inputs != y.inputs) return differ("an input");
    for (const AttrSpec& spec : info(x.op).attrs)
      if (x.has(spec.name) != y.has(spec.name) ||
          (x.has(spec.name) && !same_attr(x.attrs.at(spec.name), y.attrs.at(spec.name))))
        return differ(("attribute " + spec.name).c_str());
  }
  if (a.nodes.size() != b.nodes.size())
    return fmt::format("{} nodes against {}", a.nodes.size(), b.nodes.size());
  if (a.outputs != b.outputs) return "outputs differ";
  return {};
}

}  // namespace ac
