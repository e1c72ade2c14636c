// All that a compilation asks of a kernel that it chooses: the quick trial, and the final
// admission.
#pragma once

#include "admit/trials.h"
#include "compile/states.h"

namespace ac::test {

struct Admission {
  Request quick;
  std::vector<Request> confirmation = {};
};

// A package of the step for the largest GPU that is known, with a usual context.
inline TrialSetting as_used_at(const StepGraph& step, std::int64_t tokens) {
  constexpr std::int64_t kContext = 4096;
  TrialSetting at{.max_tokens = tokens, .setting = {132, {}}, .max_context = kContext};
  for (const StateSpec& state : sized_states(step, kContext, tokens))
    at.setting.slots.push_back(state.slots);
  return at;
}

inline Admission admission_of_advance(DType ids, std::int64_t tokens) {
  return {trial_of_advance(ids, tokens), confirmation_of_advance(ids, tokens, 4096)};
}
inline Admission admission_of_draw(DType logits, std::int64_t vocab) {
  return {trial_of_draw(logits, vocab), confirmation_of_draw(logits, vocab)};
}
inline Admission admission_of_mask(DType logits, std::int64_t vocab) {
  return {trial_of_mask(logits, vocab), confirmation_of_mask(logits, vocab)};
}
inline Admission admission_of_fallback(const StepGraph& step, const Region& region,
                                       std::int64_t tokens) {
  const TrialSetting at = as_used_at(step, tokens);
  return {trial_of_fallback(step, region, at), confirmation_of_fallback(step, region, at)};
}
// Nothing where the plan cannot be tried. `rows`: of so many sequences, which share launches.
inline std::optional<Admission> admission_of(const StepGraph& step,
                                             const std::optional<Wanted>& wanted,
                                             const Candidate& candidate, std::int64_t tokens,
                                             int rows = 1) {
  TrialSetting at = as_used_at(step, tokens);
  at.setting.rows = rows;
  auto quick = trial_of(step, wanted, candidate, {tokens, {.slots = {}, .rows = rows}});
  auto confirmation = confirmation_of(step, wanted, candidate, at);
  if (!quick || !confirmation) return std::nullopt;
  return Admission{std::move(*quick), std::move(*confirmation)};
}

}  // namespace ac::test
