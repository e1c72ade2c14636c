#include <algorithm>
#include <array>
#include <map>

#include "emit/package_stages.h"
#include "emit/plan_file.h"
#include "families/cublaslt.h"

namespace ac {
namespace {

constexpr std::array<const char*, 3> kComponents = {"generated", "library", "fallback"};

std::string component_of(const Json& selection) {
  const auto family = selection.at("family").get<std::string>();
  if (family == LibraryTask::family) return "library";
  return family == "fallback" ? family : "generated";
}

// Launches of one region: those of its trials, which are the same but for sizes.
std::int64_t calls_of(const Json& selection) {
  std::int64_t calls = 0;
  for (const Json& trial : selection.at("trials"))
    calls += static_cast<std::int64_t>(trial.at("launches").size());
  return calls;
}

Json components(const Json& selections) {
  constexpr std::array<const char*, 3> kMeasures = {"calls", "bytes", "flops"};
  std::map<std::string, std::map<std::string, double>> sums;
  std::map<std::string, double> totals;
  for (const Json& selection : selections) {
    const double uses = selection.at("uses").get<double>();
    const std::map<std::string, double> amounts = {
        {"calls", uses * static_cast<double>(calls_of(selection))},
        {"bytes", uses * selection.at("bytes").get<double>()},
        {"flops", uses * selection.at("flops").get<double>()}};
    for (const auto& [measure, amount] : amounts) {
      sums[component_of(selection)][measure] += amount;
      totals[measure] += amount;
    }
  }
  Json result = Json::object();
  for (const char* component : kComponents) {
    Json entry = Json::object();
    for (const char* measure : kMeasures) {
      const double sum = sums[component][measure], total = totals[measure];
      entry[measure] = sum;
      entry[std::string(measure) + "_share"] = total > 0 ? sum / total : 0;
    }
    result[component] = std::move(entry);
  }
  return result;
}

void count(Json& counts, const std::string& what, std::size_t times = 1) {
  counts[what] = counts.value(what, std::size_t{0}) + times;
}

// Most first.
Json ranked(const Json& counts) {
  std::vector<std::pair<std::string, std::size_t>> list;
  for (const auto& [what, times] : counts.items())
    list.emplace_back(what, times.get<std::size_t>());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Json result = Json::object();
  for (const auto& [what, times] : list) result[what] = times;
  return result;
}

Json phase_stats(const Json& phase) {
  Json illegal = Json::object(), refused = Json::object(), kinds = Json::object(),
       rejected = Json::object();
  std::size_t kept = 0;
  for (const Json& space : phase.at("space_table")) {
    kept += space.at("candidates").size();
    for (const auto& [reason, times] : space.at("illegal").items())
      count(illegal, reason, times.get<std::size_t>());
    for (const auto& [family, why] : space.at("refusals").items()) count(refused, family);
  }
  std::size_t tried = 0, validated = 0, selected = 0;
  for (const Json& selection : phase.at("selections"))
    if (!selection.at("candidate").get<std::string>().empty()) ++selected;
  for (const Json* entry : all_tried(phase))
    for (const Json& attempt : entry->at("attempts")) {
      ++tried;
      const Json& outcome = attempt.at("outcome");
      const auto kind = outcome.at("kind").get<std::string>();
      if (kind == "admitted") {
        ++validated;
        continue;
      }
      count(kinds, kind);
      // Scenarios and numbers differ; the stage and the reason are what counts.
      const std::string why = outcome.value("why", "");
      count(rejected, kind + ": " + why.substr(0, why.find_first_of(";0123456789")));
    }
  std::int64_t calls = 0;
  for (const Json& selection : phase.at("selections"))
    calls += selection.at("uses").get<std::int64_t>() * calls_of(selection);
  return {{"tokens", phase.at("tokens")},
          {"context", phase.at("context")},
          {"nodes", phase.at("nodes")},
          {"regions", phase.at("regions")},
          {"distinct", phase.at("signatures")},
          {"spaces", phase.at("space_table").size()},
          {"enumerated", phase.at("enumerated")},
          {"legal", phase.at("legal")},
          {"plans", kept},
          {"tried", tried},
          {"validated", validated},
          {"selections", phase.at("selections").size()},
          {"selected", selected},
          {"launches", calls},
          {"illegal", ranked(illegal)},
          {"refused", ranked(refused)},
          {"failed", ranked(kinds)},
          {"rejected", ranked(rejected)},
          {"components", components(phase.at("selections"))}};
}

}  // namespace

Json stats_of(const Json& plan) {
  Json stats{
      {"target", plan.at("target")},
      {"stages", plan.at("stages")},
      {"kernels", plan.at("kernels").size()},
      {"emitted_files", plan.at("emitted").at("files")},
      {"emitted_sources", plan.at("emitted").at("sources")},
      {"launch_signatures", plan.at("kernels").size()},  // a C function each
      {"check", plan.at("check")},
  };
  for (const auto& [name, phase] : phases_of(plan)) stats[name] = phase_stats(*phase);
  return stats;
}

}  // namespace ac
