#include <fmt/format.h>

#include "emit/advice_stage.h"
#include "emit/package.h"
#include "emit/plan_file.h"
#include "emit/plan_stages.h"
#include "ir/graph_text.h"

namespace ac {
namespace {

Json attempts_json(const std::vector<Attempt>& attempts) {
  Json list = Json::array();
  for (const Attempt& attempt : attempts) {
    Json json{{"candidate", attempt.candidate}, {"predicted_us", attempt.predicted}};
    if (attempt.measured) json["measured_us"] = *attempt.measured;
    json["outcome"] = to_json(attempt.outcome);
    list.push_back(std::move(json));
  }
  return list;
}

Json confirmed_json(const std::vector<Confirmed>& confirmed) {
  Json list = Json::array();
  for (const Confirmed& of : confirmed)
    list.push_back(
        {{"what", of.what}, {"trial", to_string(of.purpose)}, {"outcome", to_json(of.outcome)}});
  return list;
}

Json selection_json(const Selection& selection) {
  Json refusals = Json::object();
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
            {"attempts", attempts_json(selection.attempts)},
            {"trials", selection.trials},
            {"confirmed", confirmed_json(selection.confirmed)}};
  if (selection.measured) json["measured_us"] = *selection.measured;
  if (selection.fallback_measured) json["fallback_us"] = *selection.fallback_measured;
  for (const auto& [from, candidate] : selection.by_context)
    json["by_context"].push_back({{"from", from}, {"candidate", candidate}});
  if (!selection.why_unmeasured.empty()) json["why_unmeasured"] = selection.why_unmeasured;
  return json;
}

Json phase_json(const CompiledPhase& phase) {
  Json selections = Json::array(), abandoned = Json::array();
  for (const Selection& selection : phase.selections)
    selections.push_back(selection_json(selection));
  Json steps = Json::array();
  for (const InContext& of : phase.in_context) steps.push_back(to_json(of));
  Json cuts = Json::array();
  for (const TimedCut& cut : phase.cuts) cuts.push_back(to_json(cut));
  for (const Abandoned& given_up : phase.abandoned)
    abandoned.push_back({{"signature", given_up.signature},
                         {"ops", given_up.ops},
                         {"attempts", attempts_json(given_up.attempts)}});
  std::size_t enumerated = 0, legal = 0;
  for (const Space& space : phase.plans.spaces)
    enumerated += space.enumerated, legal += space.legal;
  return {{"name", phase.spec.name},
          {"min_tokens", phase.spec.min_tokens},
          {"max_tokens", phase.spec.max_tokens},
          {"rows", kRows[static_cast<std::size_t>(phase.spec.rows)]},
          {"tuned_at", phase.spec.tuned_at},
          {"contexts", phase.spec.contexts},
          {"shared", phase.spec.shared},
          {"nodes", phase.regions.step.graph.nodes.size()},
          {"regions", phase.regions.regions.size()},
          {"signatures", phase.regions.signatures.size()},
          {"spaces", phase.plans.spaces.size()},
          {"enumerated", enumerated},
          {"legal", legal},
          {"tokens", phase.plans.options.at.T},
          {"context", phase.plans.options.at.P},
          {"measured", phase.is_measured()},
          {"known", phase.known},
          {"region_table", region_table(phase)},
          {"space_table", space_table(phase)},
          {"fusion_table", fusion_table(phase)},
          {"cuts", std::move(cuts)},
          {"in_context", std::move(steps)},
          {"selections", std::move(selections)},
          {"abandoned", std::move(abandoned)},
          {"ending", selection_json(phase.ending)}};
}

}  // namespace

Json plan_json(const Compiled& compiled) {
  Json kernels = Json::object(), stages = Json::array(), phases = Json::array();
  for (const CompiledPhase& phase : compiled.phases) phases.push_back(phase_json(phase));
  for (const StageTime& time : compiled.times)
    stages.push_back({{"stage", time.stage}, {"seconds", time.seconds}});
  for (const auto& [entry, built] : compiled.kernels)
    kernels[entry] = {{"source", built.source.text},
                      {"registers", built.registers},
                      {"spill_bytes", built.spill_bytes}};
  return {{"format", kPlanFormat},
          {"target", compiled.program.target},
          {"dtype", torch_name(compiled.dtype)},
          {"own_dtype", torch_name(compiled.own_dtype)},
          {"measured", compiled.is_measured()},
          {"device", compiled.made_on.device},
          {"toolkit", compiled.made_on.toolkit},
          {"stages", std::move(stages)},
          {"kernels", std::move(kernels)},
          {"advice", advice_json(compiled)},
          {"phases", std::move(phases)},
          {"draw", selection_json(compiled.draw)},
          {"mask", selection_json(compiled.mask)},
          {"step", print(compiled.step)},
          {"check", to_json(compiled.check)}};
}

}  // namespace ac
