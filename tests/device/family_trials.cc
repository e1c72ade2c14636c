#include "tests/device/family_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/cover.h"
#include "tests/device/admission.h"

namespace ac::test {
namespace {

// "{.a = 1, .b = Ring::none}" as "a = 1" and "b = Ring::none".
std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(", .", at), text.size() - 1);
    fields.push_back(text.substr(at + 2, end - at - 2));
    at = end + 1;
  }
  return fields;
}

const DeviceInfo& most_capable() { return device_info("sm_90"); }

}  // namespace

std::vector<std::string> all_families() {
  const auto of_regions = family_names();
  std::vector<std::string> names(of_regions.begin(), of_regions.end());
  names.emplace_back(SamplingTask::family);
  return names;
}

void Chooser::add(const FamilyModel& model) {
  if (breadth_ == Breadth::families && has_all_families()) return;
  const Regions regions = analyse(model.step);
  PlanOptions options{.families = all_families()};
  options.at = {.S = -1, .T = model.tokens, .P = 64};
  // The best of each kind are enough to know which kinds there are.
  const Plans all = plan(regions, most_capable(), options);
  for (const Space& space : all.spaces) note_kinds(space);
  if (breadth_ == Breadth::fields) options.max_candidates = std::numeric_limits<std::size_t>::max();
  const Plans plans = plan(regions, device_, options);
  for (const Space& space : plans.spaces) note_kinds(space);
  std::set<int> known;
  for (const CoverPart& part : parts_of_all_cuts(regions, plans))
    if (known.insert(part.space).second)
      choose(model, regions.step, part.wanted, plans.spaces[static_cast<std::size_t>(part.space)]);
}

bool Chooser::has_all_families() const {
  const auto names = all_families();
  return std::ranges::all_of(names, [&](const std::string& name) { return has(name); });
}

// With why the best of a kind is not for this device; "" where another one is.
void Chooser::note_kinds(const Space& space) {
  for (const Candidate& candidate : space.candidates) {
    const char* reason = why_illegal(candidate.choice, device_);
    std::string& why = kinds_.emplace(candidate.kind, reason ? reason : "").first->second;
    if (!reason) why.clear();
  }
}

// What all plans of a kind show in one space.
std::vector<std::string> Chooser::aspects_of_op(const FamilyModel& model,
                                                const Candidate& candidate) const {
  const std::string family(family_of(candidate.choice));
  std::vector<std::string> aspects{family};
  if (breadth_ == Breadth::families) return aspects;
  aspects.push_back(candidate.kind);
  if (model.tokens == 1) aspects.push_back(candidate.kind + " for one token");
  if (alone_of(candidate.choice)) aspects.push_back(candidate.kind + " for a few tokens");
  const std::string& of_ops = breadth_ == Breadth::fields ? candidate.kind : family;
  for (const std::string& field : fields_of(op_text(candidate.choice)))
    aspects.push_back(of_ops + " of " + field);
  if (const auto* made = std::get_if<Implementation<PrefillAttentionTask>>(&candidate.choice))
    for (const std::string& field : fields_of(cpp_of(made->task.append)))
      aspects.push_back("rope_append of " + field);
  return aspects;
}

void Chooser::choose(const FamilyModel& model, const StepGraph& step,
                     const std::optional<Wanted>& wanted, const Space& space) {
  std::map<std::string, std::vector<std::string>> of_ops;  // by kind
  std::vector<std::vector<std::string>> unseen;
  for (const Candidate& candidate : space.candidates) {
    const auto [of_op, is_new] = of_ops.try_emplace(candidate.kind);
    if (is_new) of_op->second = aspects_of_op(model, candidate);
    std::vector<std::string>& aspects = unseen.emplace_back();
    const auto add = [&](const std::string& aspect) {
      if (!has(aspect)) aspects.push_back(aspect);
    };
    std::ranges::for_each(of_op->second, add);
    if (breadth_ == Breadth::fields)
      for (const PlanField& field : plan_fields(candidate.choice))
        add(candidate.kind + " with " + field.name + " = " + field.value);
  }
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < unseen.size(); ++i) {
      std::erase_if(unseen[i], [&](const std::string& aspect) { return has(aspect); });
      if (unseen[i].size() > unseen[best].size()) best = i;
    }
    if (unseen.empty() || unseen[best].empty()) return;
    const Candidate& candidate = space.candidates[best];
    // As many tokens as the plan was made for are enough.
    if (auto request = trial_of(step, wanted, candidate, {model.tokens, {}, device_.sm > 0})) {
      seen_.insert(unseen[best].begin(), unseen[best].end());
      trials_.push_back({std::string(family_of(candidate.choice)),
                         fmt::format("{}: {} {} of {}", model.name, candidate.id,
                                     op_text(candidate.choice), space.signature),
                         std::move(*request),
                         confirmation_of(step, wanted, candidate, as_used_at(step, model.tokens))
                             .value_or(std::vector<Request>())});
    }
    unseen[best].clear();
  }
}

std::vector<FamilyTrial> trials_without_plans(Breadth breadth) {
  std::vector<FamilyTrial> trials;
  const StepGraph step = step_of_all_ops();
  const auto add = [&](const char* family, const std::string& what, Admission all) {
    trials.push_back({family, what, std::move(all.quick), std::move(all.confirmation)});
  };
  const UseDef uses(step);
  for (const Output& output : step.graph.outputs) {
    if (breadth == Breadth::families && output.name != "append_attend") continue;
    const Region region = std::get<Region>(make_region(uses, {output.node}));
    add("fallback", output.name, admission_of_fallback(step, region, 7));
  }
  add("fallback", "argmax",
      {trial_of_argmax(DType::bf16, 3001),
       confirmation_of_argmax(DType::bf16, 3001, as_used_at(step, 1))});
  add("advance", "i64", admission_of_advance(DType::i64, 7));
  add("draw", "f16", admission_of_draw(DType::f16, 20000));
  add("mask_logits", "bf16", admission_of_mask(DType::bf16, 19968));
  if (breadth == Breadth::families) return trials;
  add("advance", "i32", admission_of_advance(DType::i32, 1));
  add("draw", "bf16", admission_of_draw(DType::bf16, 3001));
  add("draw", "f32", admission_of_draw(DType::f32, 77));
  add("mask_logits", "f16", admission_of_mask(DType::f16, 3001));
  add("mask_logits", "f32", admission_of_mask(DType::f32, 77));
  return trials;
}

}  // namespace ac::test
