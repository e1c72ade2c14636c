#include "emit/plan_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ac {
namespace {

bool is_entry(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
         std::all_of(name.begin(), name.end(), fits);
}

Selected selected(const Json& json, const std::string& phase, const PlanFile& plan,
                  const std::string& origin) {
  Selected result;
  result.phase = phase;
  result.signature = json.at("signature").get<std::string>();
  for (const Json& op : json.at("ops"))
    result.ops += (result.ops.empty() ? "" : "+") + op.get<std::string>();
  result.candidate = json.at("candidate").get<std::string>();
  for (const Json& trial : json.at("trials")) {
    result.trials.push_back(trial_from_json(trial, origin));
    for (const Launch* launch : result.trials.back().all_launches())
      if (!launch->product && plan.kernels.count(launch->kernel) == 0)
        bad_input("{}: a trial launches {}, whose source is missing", origin,
                  quote(launch->kernel));
  }
  result.admitted = !result.trials.empty();
  if (!result.candidate.empty())
    result.admitted &=
        std::any_of(json.at("attempts").begin(), json.at("attempts").end(), [&](const Json& tried) {
          return tried.at("candidate") == result.candidate &&
                 tried.at("outcome").at("kind") == "admitted";
        });
  const Json& confirmed = json.at("confirmed");
  result.confirmed = !confirmed.empty() && std::ranges::all_of(confirmed, [](const Json& of) {
    return of.at("outcome").at("kind") == "admitted";
  });
  return result;
}

}  // namespace

Json read_plan_json(const PackageFiles& files) {
  const std::string origin = (files.folder() / "plan.json").string();
  Json json = parse_json(files.read("plan.json"), origin);
  if (!json.is_object() || json.value("format", Json()) != kPlanFormat)
    bad_input("{}: not in the format that this program reads: compile the model again", origin);
  return json;
}

std::vector<std::pair<std::string, const Json*>> phases_of(const Json& plan) {
  std::vector<std::pair<std::string, const Json*>> phases;
  for (const Json& phase : plan.at("phases"))
    phases.emplace_back(phase.at("name").get<std::string>(), &phase);
  return phases;
}

const Json& phase_in(const Json& plan, const std::string& name) {
  for (const auto& [other, phase] : phases_of(plan))
    if (other == name) return *phase;
  bad_input("plan.json has no phase {}", quote(name));
}

std::vector<PhaseSpec> specs_of(const Program& program, const Json& plan,
                                const std::string& origin) {
  return reading_plan(origin, [&] {
    std::vector<PhaseSpec> specs;
    for (const Phase& phase : program.phases) {
      if (phase.from > 0) continue;            // chosen with the phase of that name
      if (phase.rows == Rows::each) continue;  // follows from decode's
      const Json& planned = phase_in(plan, phase.name);
      PhaseSpec spec{phase.name,
                     phase.min_tokens,
                     phase.max_tokens,
                     planned.at("tuned_at"),
                     planned.at("contexts"),
                     phase.rows,
                     planned.at("shared")};
      std::int64_t before = -1;
      for (const std::int64_t context : spec.contexts)
        if (std::exchange(before, context) >= context || context > program.max_context)
          bad_input("{}: the contexts of {} do not rise, or go beyond what the package holds",
                    origin, quote(phase.name));
      if (spec.tuned_at < 1 || spec.tuned_at > spec.max_tokens)
        bad_input("{}: {} is chosen for steps of {} tokens, and has no such steps", origin,
                  quote(phase.name), spec.tuned_at);
      specs.push_back(std::move(spec));
    }
    return specs;
  });
}

PlanFile plan_file(const Json& json, const std::string& origin) {
  return reading_plan(origin, [&] {
    PlanFile plan;
    plan.target = json.at("target").get<std::string>();
    plan.step = json.at("step").get<std::string>();
    for (const auto& [entry, kernel] : json.at("kernels").items()) {
      if (!is_entry(entry)) bad_input("{}: {} is no name of a kernel", origin, quote(entry));
      plan.kernels[entry] = {entry, kernel.at("source").get<std::string>()};
    }
    for (const auto& [phase, of] : phases_of(json)) {
      const Json& selections = of->at("selections");
      for (std::size_t i = 0; i < selections.size(); ++i)
        plan.selections.push_back(selected(selections.at(i), phase, plan,
                                           fmt::format("{}: {} selection {}", origin, phase, i)));
      plan.selections.push_back(
          selected(of->at("ending"), phase, plan, fmt::format("{}: {} ending", origin, phase)));
    }
    for (const char* key : {"draw", "mask"})
      plan.selections.push_back(
          selected(json.at(key), key, plan, fmt::format("{}: {}", origin, key)));
    return plan;
  });
}

Pinned pinned_as(const Json& plan, const std::string& phase, const std::string& origin) {
  return reading_plan(origin, [&] {
    const Json& of_phase = phase_in(plan, phase);
    const Json& selections = of_phase.at("selections");
    std::set<std::int64_t> from{0};
    for (const Json& selection : selections)
      for (const Json& of : selection.value("by_context", Json::array()))
        from.insert(of.at("from").get<std::int64_t>());
    Pinned pinned;
    for (const std::int64_t tokens : from) {
      Pinned::Variant variant{.from = tokens, .candidates = {}};
      for (const Json& selection : selections) {
        const std::string signature = selection.at("signature").get<std::string>();
        if (!selection.contains("by_context")) {
          variant.candidates[signature] = selection.at("candidate").get<std::string>();
          continue;
        }
        for (const Json& of : selection.at("by_context"))
          if (of.at("from") == tokens)
            variant.candidates[signature] = of.at("candidate").get<std::string>();
      }
      pinned.variants.push_back(std::move(variant));
    }
    for (const Json& of : of_phase.at("cuts")) pinned.cuts.push_back(timed_cut_from_json(of));
    for (const Json& of : of_phase.at("in_context"))
      pinned.contexts.push_back(in_context_from_json(of));
    return pinned;
  });
}

}  // namespace ac
