#include <fmt/format.h>

#include "emit/advice_stage.h"
#include "emit/package.h"
#include "emit/plan_stages.h"

namespace ac {
namespace {

Json attempt_json(const Attempt& attempt) {
  Json json{{"candidate", attempt.candidate}, {"predicted_us", attempt.predicted}};
  if (attempt.measured) json["measured_us"] = *attempt.measured;
  json["outcome"] = to_json(attempt.outcome);
  return json;
}

Json selection_json(const Selection& selection) {
  Json attempts = Json::array(), refusals = Json::object();
  for (const Attempt& attempt : selection.attempts) attempts.push_back(attempt_json(attempt));
  for (const Refusal& refusal : selection.refusals)
    refusals[std::string(refusal.family)] = refusal.why;
  Json json{{"signature", selection.signature},
            {"ops", selection.ops},
            {"category", to_string(selection.category)},
            {"argmax", selection.argmax},
            {"uses", selection.uses},
            {"family", selection.family},
            {"candidate", selection.candidate},
            {"predicted_us", selection.predicted},
            {"flops", selection.work.flops},
            {"bytes", selection.work.bytes()},
            {"kernels", selection.kernels},
            {"enumerated", selection.enumerated},
            {"legal", selection.legal},
            {"illegal", selection.illegal},
            {"refusals", std::move(refusals)},
            {"attempts", std::move(attempts)},
            {"trials", selection.trials}};
  if (selection.measured) json["measured_us"] = *selection.measured;
  if (selection.fallback_measured) json["fallback_us"] = *selection.fallback_measured;
  if (!selection.why_unmeasured.empty()) json["why_unmeasured"] = selection.why_unmeasured;
  return json;
}

Json phase_json(const CompiledPhase& phase) {
  Json selections = Json::array();
  for (const Selection& selection : phase.selections)
    selections.push_back(selection_json(selection));
  std::size_t enumerated = 0, legal = 0;
  for (const Space& space : phase.plans.spaces)
    enumerated += space.enumerated, legal += space.legal;
  return {{"nodes", phase.nodes},
          {"regions", phase.regions.regions.size()},
          {"signatures", phase.regions.signatures.size()},
          {"spaces", phase.plans.spaces.size()},
          {"enumerated", enumerated},
          {"legal", legal},
          {"tokens", phase.plans.options.at.T},
          {"context", phase.plans.options.at.P},
          {"region_table", region_table(phase)},
          {"space_table", space_table(phase)},
          {"fusion_table", fusion_table(phase)},
          {"selections", std::move(selections)}};
}

}  // namespace

Json plan_json(const Compiled& compiled) {
  Json kernels = Json::object();
  for (const auto& [entry, built] : compiled.kernels)
    kernels[entry] = {{"source", built.source.text},
                      {"registers", built.registers},
                      {"spill_bytes", built.spill_bytes}};
  return {{"format", 1},
          {"target", compiled.program.target},
          {"measured", false},
          {"kernels", std::move(kernels)},
          {"advice", advice_json(compiled)},
          {"prefill", phase_json(compiled.prefill)},
          {"decode", phase_json(compiled.decode)}};
}

}  // namespace ac
