#include "analyze/layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "analyze/describe.h"
#include "base/error.h"

namespace ac {
namespace {

// Compute nodes up to one, with its value the only one that others need.
struct Segment {
  std::vector<NodeId> nodes;
  bool has_state = false;
};

std::vector<Segment> segments_of(const UseDef& uses) {
  const Graph& graph = uses.graph();
  const auto is_value = [&](NodeId id) {
    return is_compute(graph[id]) || graph[id].op == Op::input;
  };
  std::vector<Segment> segments(1);
  // Values that are needed later, and by how many nodes each.
  std::size_t needed = 0;
  std::vector<std::ptrdiff_t> readers(graph.nodes.size());
  for (const NodeId id : uses.order()) {
    if (!is_value(id)) continue;
    std::ptrdiff_t& left = readers[static_cast<std::size_t>(id)];
    left = std::ssize(uses.users(id)) + uses.is_output(id) + uses.is_aliased(id);
    if (left > 0) ++needed;
    if (!is_compute(graph[id])) continue;
    for (const NodeId operand : uses.operands(id))
      if (is_value(operand) && --readers[static_cast<std::size_t>(operand)] == 0) --needed;
    segments.back().nodes.push_back(id);
    if (info(graph[id].op).memory == Memory::state) segments.back().has_state = true;
    if (needed == 1 && left > 0) segments.emplace_back();
  }
  if (segments.back().nodes.empty()) segments.pop_back();
  return segments;
}

// Whether two layers compute the same, with the same constants and positions.
bool are_alike(const Region& a, const Region& b) {
  if (a.signature != b.signature || a.outputs.size() != 1) return false;
  return std::ranges::equal(a.inputs, b.inputs, [](const Parameter& x, const Parameter& y) {
    const bool is_shared = x.role == Role::constant || x.role == Role::positions;
    return !is_shared || x.storage == y.storage;
  });
}

}  // namespace

std::vector<Layer> layers_of(const UseDef& uses) {
  const std::vector<Segment> segments = segments_of(uses);
  std::vector<std::size_t> first;  // segments with which layers begin
  for (std::size_t i = 0; i < segments.size(); ++i)
    if (segments[i].has_state) first.push_back(i);
  if (first.size() < 2) return {};
  const std::size_t length = first[1] - first[0];
  std::vector<Layer> layers;
  for (std::size_t n = 0; n < first.size(); ++n) {
    const std::size_t begin = first[n], end = begin + length;
    const bool fits = n + 1 < first.size() ? first[n + 1] == end : end <= segments.size();
    if (!fits) return {};
    Layer& layer = layers.emplace_back();
    for (std::size_t i = begin; i < end; ++i)
      layer.insert(layer.end(), segments[i].nodes.begin(), segments[i].nodes.end());
  }
  return layers;
}

std::variant<Region, Boundary> region_of_layers(const UseDef& uses, std::span<const Layer> layers) {
  AC_ASSERT(!layers.empty());
  std::vector<NodeId> all;
  std::vector<Region> each;
  for (const Layer& layer : layers) {
    auto made = make_region(uses, layer, Behind::whatever);
    if (const auto* boundary = std::get_if<Boundary>(&made)) return *boundary;
    each.push_back(std::get<Region>(std::move(made)));
    all.insert(all.end(), layer.begin(), layer.end());
  }
  auto made = make_region(uses, std::move(all), Behind::whatever);
  auto* const region = std::get_if<Region>(&made);
  if (!region) return made;
  region->layers = static_cast<int>(layers.size());
  const auto is_as_first = [&](const Region& one) { return are_alike(one, each[0]); };
  if (std::ranges::all_of(each, is_as_first))
    region->signature = fmt::format("{} layers, each: {}", layers.size(), each[0].signature);
  return made;
}

Region first_layers(const StepGraph& step, const Region& region, int count) {
  const UseDef uses(step);
  const auto is_inside = [&](NodeId id) {
    return std::ranges::find(region.nodes, id) != region.nodes.end();
  };
  std::vector<Layer> layers = layers_of(uses);
  std::erase_if(layers, [&](const Layer& layer) { return !is_inside(layer.front()); });
  AC_ASSERT(std::ssize(layers) == region.layers && count <= region.layers);
  auto made = region_of_layers(uses, std::span(layers).first(static_cast<std::size_t>(count)));
  return std::get<Region>(std::move(made));
}

}  // namespace ac
