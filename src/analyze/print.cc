#include "analyze/analyse.h"
#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

std::string layout_text(const Layout& layout) {
  std::string text(to_string(layout.placement));
  if (layout.placement == Placement::strided) text += " " + to_string(layout.strides);
  if (layout.offset != Dim(0)) text += " offset " + layout.offset.str();
  return text;
}

std::string join(const std::vector<std::string>& items, const char* separator) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

std::string argument_name(const Region& region, const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::input:
      return region.inputs[argument.index].name;
    case Argument::Kind::output:
      return region.outputs[argument.index].name;
    case Argument::Kind::state:
      return region.states[argument.index].name;
    case Argument::Kind::new_tokens:
      return "T";
    case Argument::Kind::cached_tokens:
      return "P";
  }
  AC_UNREACHABLE();
}

std::vector<std::string> argument_names(const Region& region) {
  std::vector<std::string> names;
  for (const Argument& argument : region.arguments)
    names.push_back(argument_name(region, argument));
  return names;
}

std::string parameter_text(const Parameter& parameter) {
  std::string text =
      fmt::format("  {:<6} {:<10} {:<20} %{}", parameter.name, to_string(parameter.role),
                  to_string(parameter.type), parameter.value);
  if (parameter.state >= 0) return text + fmt::format(" state {}\n", parameter.state);
  if (parameter.storage != parameter.value) text += fmt::format(" of %{}", parameter.storage);
  text += " " + layout_text(parameter.layout);
  if (!parameter.format.empty()) text += fmt::format(" in {}", parameter.format);
  if (parameter.immediate) text += fmt::format(" = {}", *parameter.immediate);
  return text + "\n";
}

std::size_t signature_index(const Regions& regions, const Region& region) {
  std::size_t index = 0;
  while (regions.signatures[index].signature != region.signature) ++index;
  return index;
}

std::string region_text(const Regions& regions, const Region& region, const Bindings& at) {
  const Graph& graph = regions.step.graph;
  std::string out = fmt::format("region {}: {}, signature {}", region.id,
                                to_string(region.category), signature_index(regions, region));
  if (!region.module.empty()) out += " @ " + quote(region.module);
  out += '\n';
  std::vector<std::string> nodes;
  for (const NodeId id : region.nodes)
    nodes.push_back(fmt::format("%{} {}", id, info(graph[id].op).name));
  out += fmt::format("  nodes  {}\n", join(nodes, ", "));
  for (const auto* list : {&region.inputs, &region.outputs, &region.states})
    for (const Parameter& parameter : *list) out += parameter_text(parameter);
  out += fmt::format("  call   ({})\n", join(argument_names(region), ", "));
  std::vector<std::string> axes;
  for (const std::int64_t axis : region.reduction_axes) axes.push_back(fmt::format("{}", axis));
  out += fmt::format("  kind   {}, {} access, {} summed in {}, reduces [{}]{}{}\n",
                     info(region.dominant).name, to_string(region.access), short_name(region.dtype),
                     short_name(region.accumulation), join(axes, ", "),
                     region.dynamic_rows ? ", dynamic rows" : "",
                     region.dynamic_context ? ", dynamic context" : "");
  const Work& work = region.work;
  const Amount amount = evaluate(work, at);
  out += fmt::format("  work   {} flops; bytes: {} weights, {} activations, {} state",
                     work.flops.str(), work.weight_bytes.str(), work.activation_bytes.str(),
                     work.state_bytes.str());
  if (work.window > 0) out += fmt::format("; P < {}", work.window);
  out += fmt::format("; here {} flops, {} bytes, {:.3f} flops a byte\n", amount.flops,
                     amount.bytes(), amount.intensity());
  for (const Boundary& boundary : region.boundaries)
    out += fmt::format("  ends   {}{}: {}\n", to_string(boundary.reason),
                       is_hard(boundary.reason) ? " (hard)" : "", boundary.text);
  return out;
}

Json to_json(const Dim& dim) { return dim.is_constant() ? Json(dim.constant()) : Json(dim.str()); }

Json to_json(const Shape& shape) {
  Json dims = Json::array();
  for (const Dim& dim : shape) dims.push_back(to_json(dim));
  return dims;
}

Json to_json(const Layout& layout) {
  Json object{{"placement", to_string(layout.placement)}, {"offset", to_json(layout.offset)}};
  if (layout.placement != Placement::opaque) object["strides"] = to_json(layout.strides);
  return object;
}

Json to_json(const Parameter& parameter) {
  Json object{{"name", parameter.name},
              {"role", to_string(parameter.role)},
              {"value", parameter.value},
              {"storage", parameter.storage},
              {"views", parameter.views},
              {"dtype", short_name(parameter.type.dtype)},
              {"shape", to_json(parameter.type.shape)},
              {"layout", to_json(parameter.layout)},
              {"bytes", to_json(parameter.bytes)}};
  // As text where it is no number of JSON.
  if (parameter.immediate) object["immediate"] = fmt::format("{}", *parameter.immediate);
  if (parameter.state >= 0) object["state"] = parameter.state;
  if (!parameter.format.empty()) object["format"] = parameter.format;
  return object;
}

Json to_json(const std::vector<Parameter>& parameters) {
  Json list = Json::array();
  for (const Parameter& parameter : parameters) list.push_back(to_json(parameter));
  return list;
}

Json to_json(const std::vector<Boundary>& boundaries) {
  Json list = Json::array();
  for (const Boundary& boundary : boundaries)
    list.push_back({{"reason", to_string(boundary.reason)},
                    {"hard", is_hard(boundary.reason)},
                    {"from", boundary.from},
                    {"to", boundary.to},
                    {"text", boundary.text}});
  return list;
}

Json to_json(const Work& work, const Bindings& at) {
  const Amount amount = evaluate(work, at);
  return {
      {"flops", to_json(work.flops)},
      {"weight_bytes", to_json(work.weight_bytes)},
      {"activation_bytes", to_json(work.activation_bytes)},
      {"state_bytes", to_json(work.state_bytes)},
      {"window", work.window},
      {"at",
       {{"flops", amount.flops}, {"bytes", amount.bytes()}, {"intensity", amount.intensity()}}}};
}

Json to_json(const Regions& regions, const Region& region, const Bindings& at) {
  return {{"id", region.id},
          {"category", to_string(region.category)},
          {"signature", signature_index(regions, region)},
          {"module", region.module},
          {"nodes", region.nodes},
          {"ops", op_names(region)},
          {"inputs", to_json(region.inputs)},
          {"outputs", to_json(region.outputs)},
          {"states", to_json(region.states)},
          {"arguments", argument_names(region)},
          {"dtype", short_name(region.dtype)},
          {"accumulation", short_name(region.accumulation)},
          {"reduction_axes", region.reduction_axes},
          {"dominant", info(region.dominant).name},
          {"access", to_string(region.access)},
          {"work", to_json(region.work, at)},
          {"dynamic_rows", region.dynamic_rows},
          {"dynamic_context", region.dynamic_context},
          {"boundaries", to_json(region.boundaries)}};
}

}  // namespace

std::string print(const Regions& regions, const Bindings& at) {
  const Amount total = regions.total(at);
  std::string out = fmt::format(
      "regions {}: {} regions of {} signatures; at T={}, P={}: {} flops; bytes: {} weights, {} "
      "activations, {} state\n",
      quote(regions.step.graph.name), regions.regions.size(), regions.signatures.size(), at.T, at.P,
      total.flops, total.weight_bytes, total.activation_bytes, total.state_bytes);
  for (const Region& region : regions.regions) out += region_text(regions, region, at);
  for (const Boundary& boundary : regions.boundaries)
    out += fmt::format("no region: {}: {}\n", to_string(boundary.reason), boundary.text);
  for (std::size_t i = 0; i < regions.signatures.size(); ++i)
    out += fmt::format("signature {} x{}: {}\n", i, regions.signatures[i].regions.size(),
                       regions.signatures[i].signature);
  return out;
}

Json to_json(const Regions& regions, const Bindings& at) {
  const Amount total = regions.total(at);
  Json list = Json::array(), signatures = Json::array();
  for (const Region& region : regions.regions) list.push_back(to_json(regions, region, at));
  for (const Equals& equals : regions.signatures)
    signatures.push_back({{"signature", equals.signature}, {"regions", equals.regions}});
  return {{"stage", "regions"},
          {"name", regions.step.graph.name},
          {"at", {{"T", at.T}, {"P", at.P}}},
          {"total",
           {{"flops", total.flops},
            {"weight_bytes", total.weight_bytes},
            {"activation_bytes", total.activation_bytes},
            {"state_bytes", total.state_bytes}}},
          {"regions", std::move(list)},
          {"signatures", std::move(signatures)},
          {"boundaries", to_json(regions.boundaries)}};
}

}  // namespace ac
