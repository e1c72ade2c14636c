#include "analyze/analyse.h"

#include <map>

#include "analyze/describe.h"
#include "analyze/grouping.h"
#include "base/error.h"
#include "ir/assumptions.h"

namespace ac {
namespace {

// Outputs that are inputs or weights, or views of them: nothing is computed, and whoever reads the
// output reads the storage of something else.
std::vector<Boundary> outputs_of_no_region(const Graph& graph) {
  std::vector<Boundary> boundaries;
  for (const Output& output : graph.outputs) {
    const NodeId storage = storage_of(graph, output.node);
    if (is_compute(graph[storage])) continue;
    boundaries.push_back(
        {Reason::aliasing, storage, output.node,
         fmt::format("output \"{}\" is {}{}", output.name,
                     storage == output.node ? "" : "a view of ", describe(graph, storage))});
  }
  return boundaries;
}

}  // namespace

Amount Regions::total(const Bindings& at) const {
  Amount sum;
  for (const Region& region : regions) sum += evaluate(region.work, at);
  return sum;
}

Regions analyse(StepGraph step) {
  verify(step, "analyse");
  Regions result;
  // Regions run on drawn numbers, and kernels do not depend on what is assumed of a model's.
  result.step = without_assumptions(std::move(step));
  const UseDef uses(result.step);
  std::map<std::string, std::size_t> known;
  for (Group& group : group_nodes(uses)) {
    Region region = describe_region(uses, group.nodes);
    region.id = static_cast<int>(result.regions.size());
    region.boundaries = std::move(group.boundaries);
    const auto [at, is_new] = known.emplace(region.signature, result.signatures.size());
    if (is_new) result.signatures.push_back({region.signature, {}});
    result.signatures[at->second].regions.push_back(region.id);
    result.regions.push_back(std::move(region));
  }
  result.boundaries = outputs_of_no_region(result.step.graph);
  for (std::size_t i = 0; i < result.step.graph.nodes.size(); ++i)
    result.node_work.push_back(work_of(result.step, static_cast<NodeId>(i)));
  return result;
}

}  // namespace ac
