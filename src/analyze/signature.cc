// Everything that decides which kernels fit a region and how fast they are, in canonical text:
// ops with their attributes, types, layouts and roles, and how they hang together. Not: weight
// names, node numbers, layers, numbers of states, and the values of constants that are passed in.
#include <map>
#include <set>

#include "analyze/describe.h"
#include "base/error.h"

namespace ac {
namespace {

struct AttrText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(DType value) const { return std::string(short_name(value)); }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    std::string text;
    for (const std::int64_t item : value)
      text += fmt::format("{}{}", text.empty() ? "" : " ", item);
    return "[" + text + "]";
  }
  std::string operator()(const Dim& value) const { return value.str(); }
  std::string operator()(const Shape& value) const { return to_string(value); }
  std::string operator()(const Data&) const { return {}; }
};

std::string parameter_key(const Parameter& parameter) {
  std::string text = fmt::format("{} {}", to_string(parameter.role), to_string(parameter.type));
  if (!parameter.format.empty()) text += fmt::format(" in {}", parameter.format);
  if (parameter.immediate) text += fmt::format(" = {}", *parameter.immediate);
  const Layout& layout = parameter.layout;
  if (layout.placement == Placement::strided) text += " strides " + to_string(layout.strides);
  if (layout.placement == Placement::opaque) text += " opaque";
  if (layout.offset != Dim(0)) text += " offset " + layout.offset.str();
  return text;
}

}  // namespace

std::string signature_of(const StepGraph& step, const Region& region) {
  std::map<NodeId, std::string> names;
  std::string text;
  for (const Parameter& input : region.inputs) {
    names[input.value] = input.name;
    text += fmt::format("{}: {}; ", input.name, parameter_key(input));
    // An opaque value is copied by the views themselves, so they matter.
    if (input.layout.placement != Placement::opaque) continue;
    for (const NodeId view : input.views)
      text +=
          fmt::format("{} {}; ", info(step.graph[view].op).name, to_string(step.graph.type(view)));
  }
  for (const Parameter& state : region.states) {
    const StateSpec& of = step.states[static_cast<std::size_t>(state.state)];
    text += fmt::format("{}: {}; ", state.name, to_string(of));
  }
  std::set<NodeId> members;
  int count = 0;
  for (const NodeId id : region.nodes) {
    const Node& node = step.graph[id];
    if (is_compute(node)) members.insert(id);
    if (members.count(storage_of(step.graph, id)) == 0) continue;  // part of an input
    names[id] = fmt::format("v{}", count++);
    std::string inputs;
    for (const NodeId input : node.inputs) inputs += (inputs.empty() ? "" : ", ") + names.at(input);
    text += fmt::format("{} = {}({})", names[id], info(node.op).name, inputs);
    for (const AttrSpec& spec : info(node.op).attrs)
      if (spec.name != "state" && node.has(spec.name))
        text += fmt::format(" {}={}", spec.name, std::visit(AttrText{}, node.attrs.at(spec.name)));
    text += fmt::format(" {}; ", to_string(node.type));
  }
  text += "return";
  for (const Parameter& output : region.outputs) text += " " + names.at(output.value);
  return text;
}

}  // namespace ac
