#include <cmath>

#include "base/error.h"
#include "ir/graph_text.h"
#include "state/state_json.h"

namespace ac {
namespace {

// JSON's string syntax, so that one escape rule serves both forms.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class Items, class Print>
std::string list(const Items& items, Print print_item) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ", ";
    text += print_item(item);
  }
  return text + "]";
}

struct AttrPrinter {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(DType value) const { return std::string(short_name(value)); }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    return list(value, [](std::int64_t item) { return fmt::format("{}", item); });
  }
  std::string operator()(const Dim& value) const { return value.str(); }
  std::string operator()(const Shape& value) const { return to_string(value); }
  std::string operator()(const Data& value) const {
    // Equal neighbours are printed once, as value x count: masks and fills stay readable.
    std::string text = "[";
    const auto& items = *value;
    for (std::size_t i = 0; i < items.size();) {
      std::size_t end = i + 1;
      while (end < items.size() &&
             (items[end] == items[i] || (items[end] != items[end] && items[i] != items[i])) &&
             std::signbit(items[end]) == std::signbit(items[i]))
        ++end;
      if (i > 0) text += ", ";
      text += number(items[i]);
      if (end - i > 1) text += fmt::format(" x {}", end - i);
      i = end;
    }
    return text + "]";
  }
};

struct AttrToJson {
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const {
    return std::isfinite(value) ? Json(value) : Json(number(value));
  }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(DType value) const { return short_name(value); }
  Json operator()(const std::vector<std::int64_t>& value) const { return value; }
  Json operator()(const Dim& value) const {
    return value.is_constant() ? Json(value.constant()) : Json(value.str());
  }
  Json operator()(const Shape& value) const {
    Json dims = Json::array();
    for (const Dim& dim : value) dims.push_back((*this)(dim));
    return dims;
  }
  Json operator()(const Data& value) const {
    Json items = Json::array();
    for (const double item : *value) items.push_back((*this)(item));
    return items;
  }
};

std::string header(const Graph& graph) {
  const TokenLimit& limit = graph.limit;
  if (limit == TokenLimit{}) return quoted(graph.name);
  const std::string because = limit.why.empty() ? "" : " because " + quoted(limit.why);
  return fmt::format("{} max_tokens={}{}", quoted(graph.name), limit.tokens, because);
}

void print_nodes(const Graph& graph, std::string& out) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const OpInfo& op = info(node.op);
    out += fmt::format("  %{} = {}", i, op.name);
    if (!node.inputs.empty()) {
      std::string inputs;
      for (const NodeId input : node.inputs)
        inputs += fmt::format("{}%{}", inputs.empty() ? "" : ", ", input);
      out += "(" + inputs + ")";
    }
    std::string attrs;
    for (const AttrSpec& spec : op.attrs)
      if (node.has(spec.name))
        attrs += fmt::format("{}{}={}", attrs.empty() ? "" : ", ", spec.name,
                             std::visit(AttrPrinter{}, node.attrs.at(spec.name)));
    if (!attrs.empty()) out += " {" + attrs + "}";
    out += " : " + to_string(node.type);
    if (!node.module.empty()) out += " @ " + quoted(node.module);
    out += '\n';
  }
  for (const Output& output : graph.outputs)
    out += fmt::format("  return %{} as {}\n", output.node, quoted(output.name));
}

Json type_to_json(const TensorType& type, Json object) {
  object["dtype"] = short_name(type.dtype);
  object["shape"] = AttrToJson{}(type.shape);
  return object;
}

}  // namespace

std::string print(const Graph& graph) {
  std::string out = fmt::format("graph {} {{\n", header(graph));
  print_nodes(graph, out);
  return out + "}\n";
}

std::string print(const StepGraph& step) {
  std::string out = fmt::format("step {} {{\n", header(step.graph));
  for (std::size_t i = 0; i < step.states.size(); ++i) {
    const StateSpec& state = step.states[i];
    out += fmt::format("  state {} : {} {}", i, state.kind_name(), short_name(state.dtype));
    for (const StateTensor& tensor : state.tensors)
      out += fmt::format(
          " {}={}x{}{}", tensor.name, tensor.rows, tensor.size,
          tensor.dtype == state.dtype ? "" : fmt::format(":{}", short_name(tensor.dtype)));
    out += fmt::format(" window={}", state.window);
    if (!state.module.empty()) out += " @ " + quoted(state.module);
    out += '\n';
  }
  print_nodes(step.graph, out);
  return out + "}\n";
}

Json to_json(const Graph& graph) {
  Json nodes = Json::array();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    Json object{{"id", i}, {"op", info(node.op).name}, {"inputs", node.inputs}};
    Json attrs = Json::object();
    for (const AttrSpec& spec : info(node.op).attrs)
      if (node.has(spec.name))
        attrs[spec.name] = std::visit(AttrToJson{}, node.attrs.at(spec.name));
    object["attrs"] = std::move(attrs);
    object = type_to_json(node.type, std::move(object));
    object["module"] = node.module;
    nodes.push_back(std::move(object));
  }
  Json outputs = Json::array();
  for (const Output& output : graph.outputs)
    outputs.push_back({{"name", output.name}, {"node", output.node}});
  return {{"stage", "graph"},
          {"name", graph.name},
          {"max_tokens", graph.limit.tokens},
          {"max_tokens_because", graph.limit.why},
          {"nodes", std::move(nodes)},
          {"outputs", std::move(outputs)}};
}

Json to_json(const StepGraph& step) {
  Json states = Json::array();
  for (const StateSpec& state : step.states) states.push_back(to_json(state));
  Json result = to_json(step.graph);
  result["stage"] = "step";
  result["states"] = std::move(states);
  return result;
}

}  // namespace ac
