#include "emit/plan_stages.h"

#include <algorithm>
#include <cmath>

namespace ac {
namespace {

// Of an estimate, more digits say nothing.
double rounded(double microseconds) { return std::round(microseconds * 1000) / 1000; }

}  // namespace

Json region_table(const CompiledPhase& phase) {
  Json table = Json::array();
  for (const Equals& equals : phase.regions.signatures) {
    const Region& region = phase.regions.regions[static_cast<std::size_t>(equals.regions[0])];
    const Amount amount = evaluate(region.work, phase.plans.options.at);
    Json ops = Json::array(), ends = Json::array();
    for (const Op op : region.ops) ops.push_back(info(op).name);
    for (const Boundary& boundary : region.boundaries) ends.push_back(to_string(boundary.reason));
    table.push_back({{"signature", equals.signature},
                     {"regions", equals.regions.size()},
                     {"module", region.module},
                     {"category", to_string(region.category)},
                     {"ops", std::move(ops)},
                     {"dtype", short_name(region.dtype)},
                     {"access", to_string(region.access)},
                     {"flops", amount.flops},
                     {"bytes", amount.bytes()},
                     {"ends", std::move(ends)}});
  }
  return table;
}

Json space_table(const CompiledPhase& phase) {
  std::vector<int> regions(phase.plans.spaces.size());
  for (const int space : phase.plans.space_of_region) ++regions[static_cast<std::size_t>(space)];
  Json table = Json::array();
  for (std::size_t i = 0; i < phase.plans.spaces.size(); ++i) {
    const Space& space = phase.plans.spaces[i];
    Json refusals = Json::object(), candidates = Json::object();
    for (const Refusal& refusal : space.refusals)
      refusals[std::string(refusal.family)] = refusal.why;
    for (const Candidate& candidate : space.candidates)
      candidates[candidate.id] = rounded(candidate.cost.microseconds);
    table.push_back({{"signature", space.signature},
                     {"regions", regions[i]},
                     {"enumerated", space.enumerated},
                     {"legal", space.legal},
                     {"illegal", space.illegal},
                     {"refusals", std::move(refusals)},
                     {"candidates", std::move(candidates)}});
  }
  return table;
}

Json fusion_table(const CompiledPhase& phase) {
  Json table = Json::array();
  for (const Neighbourhood& around : phase.plans.neighbourhoods) {
    Json options = Json::array();
    for (const FusionOption& option : around.options) {
      Json json{{"fusion", to_string(option.fusion)}, {"kernels", option.text}};
      // Its text names nodes, in which equal neighbourhoods differ.
      if (option.refused) json["refused"] = to_string(option.refused->reason);
      if (option.microseconds) json["predicted_us"] = rounded(*option.microseconds);
      options.push_back(std::move(json));
    }
    const auto known = std::find_if(table.begin(), table.end(), [&](const Json& entry) {
      return entry["kind"] == to_string(around.kind) && entry["options"] == options;
    });
    if (known != table.end())
      (*known)["count"] = (*known)["count"].get<int>() + 1;
    else
      table.push_back(
          {{"kind", to_string(around.kind)}, {"count", 1}, {"options", std::move(options)}});
  }
  return table;
}

}  // namespace ac
