#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "device/devices.h"
#include "plan/planner.h"

namespace ac {
namespace {

// Regions of analyse() that a space serves.
std::vector<int> regions_by_space(const Plans& plans) {
  std::vector<int> counts(plans.spaces.size());
  for (const int space : plans.space_of_region) ++counts[static_cast<std::size_t>(space)];
  return counts;
}

std::string space_text(const Space& space, std::size_t index, int regions, std::size_t shown) {
  std::string out = fmt::format("space {}: ", index);
  out += regions > 0 ? fmt::format("{} regions", regions) : std::string("for other fusions");
  out += fmt::format("; {} enumerated, {} legal, {} kept\n", space.enumerated, space.legal,
                     space.candidates.size());
  out += fmt::format("  for      {}\n", space.signature);
  if (space.candidates.empty()) return out + fmt::format("  fallback {}\n", space.no_family());
  out += fmt::format("  op       {} {}\n", family_of(space.candidates[0].choice),
                     op_text(space.candidates[0].choice));
  for (const auto& [reason, count] : space.illegal)
    out += fmt::format("  illegal  {} {}\n", count, reason);
  for (std::size_t i = 0; i < std::min(shown, space.candidates.size()); ++i) {
    const Candidate& candidate = space.candidates[i];
    out += fmt::format("  {:>7.2f} us  {:<40} {:>4.0f} GB/s, occupancy {:.2f}, {} bound, risk {}\n",
                       candidate.cost.microseconds, candidate.id,
                       candidate.cost.bytes / candidate.cost.microseconds / 1e3,
                       candidate.cost.occupancy, to_string(candidate.cost.limit),
                       to_string(candidate.cost.risk));
  }
  return out;
}

std::string option_text(const FusionOption& option) {
  std::string out = fmt::format("  {:<8} {}", to_string(option.fusion), option.text);
  if (option.refused)
    return out + fmt::format(": refused, {}: {}\n", to_string(option.refused->reason),
                             option.refused->text);
  out += " -> spaces";
  for (const Part& part : option.parts) out += fmt::format(" {}", part.space);
  return out + (option.microseconds ? fmt::format(", {:.2f} us\n", *option.microseconds)
                                    : std::string(", needs a fallback\n"));
}

std::string neighbourhood_text(const Neighbourhood& around) {
  std::string out;
  for (const FusionOption& option : around.options) out += option_text(option);
  return out;
}

Json to_json(const Candidate& candidate) {
  return {{"id", candidate.id},
          {"family", family_of(candidate.choice)},
          {"kind", candidate.kind},
          {"op", op_text(candidate.choice)},
          {"plan", plan_text(candidate.choice)},
          {"predicted",
           {{"us", candidate.cost.microseconds},
            {"bytes", candidate.cost.bytes},
            {"flops", candidate.cost.flops},
            {"occupancy", candidate.cost.occupancy},
            {"bound", to_string(candidate.cost.limit)}}},
          {"risk", to_string(candidate.cost.risk)}};
}

Json to_json(const Space& space, int regions) {
  Json candidates = Json::array(), refusals = Json::array(), illegal = Json::object();
  for (const Candidate& candidate : space.candidates) candidates.push_back(to_json(candidate));
  for (const Refusal& refusal : space.refusals)
    refusals.push_back({{"family", refusal.family}, {"why", refusal.why}});
  for (const auto& [reason, count] : space.illegal) illegal[reason] = count;
  return {{"signature", space.signature},   {"regions", regions},
          {"enumerated", space.enumerated}, {"legal", space.legal},
          {"illegal", std::move(illegal)},  {"refusals", std::move(refusals)},
          {"fallback", space.no_family()},  {"candidates", std::move(candidates)}};
}

Json to_json(const Neighbourhood& around) {
  Json options = Json::array();
  for (const FusionOption& option : around.options) {
    Json item{{"fusion", to_string(option.fusion)}, {"kernels", option.text}};
    Json spaces = Json::array();
    for (const Part& part : option.parts) spaces.push_back(part.space);
    item["spaces"] = std::move(spaces);
    if (option.refused)
      item["refused"] = {{"reason", to_string(option.refused->reason)},
                         {"text", option.refused->text}};
    if (option.microseconds) item["us"] = *option.microseconds;
    options.push_back(std::move(item));
  }
  return {{"kind", to_string(around.kind)}, {"nodes", around.nodes}, {"options", options}};
}

}  // namespace

std::string print(const Plans& plans, const Regions& regions, std::size_t shown) {
  std::string out = fmt::format(
      "candidates {}: {} ({}), {} spaces, {} neighbourhoods; at T={}, P={}\n",
      quote(regions.step.graph.name), plans.device.target, plans.device.name, plans.spaces.size(),
      plans.neighbourhoods.size(), plans.options.at.T, plans.options.at.P);
  if (const std::string note = uncalibrated_note(plans.device); !note.empty()) out += note + "\n";
  const std::vector<int> counts = regions_by_space(plans);
  for (std::size_t i = 0; i < plans.spaces.size(); ++i)
    out += space_text(plans.spaces[i], i, counts[i], shown);
  // Equal ones of different layers, once.
  std::vector<std::pair<std::string, int>> kinds;
  for (const Neighbourhood& around : plans.neighbourhoods) {
    const std::string text =
        fmt::format("{}\n{}", to_string(around.kind), neighbourhood_text(around));
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == text; });
    if (known == kinds.end())
      kinds.emplace_back(text, 1);
    else
      ++known->second;
  }
  for (const auto& [text, count] : kinds) out += fmt::format("neighbourhood x{}: {}", count, text);
  return out;
}

Json to_json(const Plans& plans, const Regions& regions) {
  Json spaces = Json::array(), neighbourhoods = Json::array();
  const std::vector<int> counts = regions_by_space(plans);
  for (std::size_t i = 0; i < plans.spaces.size(); ++i)
    spaces.push_back(to_json(plans.spaces[i], counts[i]));
  for (const Neighbourhood& around : plans.neighbourhoods)
    neighbourhoods.push_back(to_json(around));
  Json json{{"stage", "candidates"},
            {"name", regions.step.graph.name},
            {"target", plans.device.target},
            {"at", {{"T", plans.options.at.T}, {"P", plans.options.at.P}}},
            {"max_candidates", plans.options.max_candidates},
            {"spaces", std::move(spaces)},
            {"space_of_region", plans.space_of_region},
            {"neighbourhoods", std::move(neighbourhoods)}};
  if (plans.device.is_uncalibrated()) json["uncalibrated"] = true;
  return json;
}

}  // namespace ac
