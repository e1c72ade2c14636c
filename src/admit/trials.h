// Trials of implementations: a region cut out of its step, made small enough for a CPU, and the
// very kernels that were planned for the whole.
#pragma once

#include "admit/request.h"
#include "plan/space.h"

namespace ac {

// What trials must know of the step that a region comes from.
struct TrialSetting {
  std::int64_t max_tokens = 1;  // of one step
  Setting setting;
  // Whether a library is judged itself: by so many tokens that it takes the algorithm it would.
  bool judges_library = false;
  std::int64_t max_context = 0;  // that the package holds
};

// Of a candidate for a region of the step, or, without one, for what chooses the token; nothing
// where it cannot be tried small or whole (its plan does not fit).
std::optional<Request> trial_of(const StepGraph& step, const std::optional<Wanted>& wanted,
                                const Candidate& candidate, const TrialSetting& at);
// The trial `one`, of a step of one token, with kernels that take several rows at once
// (generate/each_row.h), in launches of a few. Nothing where they cannot.
std::optional<Request> trial_of_rows(Request one);
// Of the fallback of one node, which is all of the wanted region.
Request trial_of_fallback(const StepGraph& step, const Region& region, const TrialSetting& at);
// Of the fallback of what chooses the token.
Request trial_of_argmax(DType logits, std::int64_t vocab);
// Of what ends a step over token ids of this type.
Request trial_of_advance(DType ids, std::int64_t max_tokens);
// Of the launches that draw a token.
Request trial_of_draw(DType logits, std::int64_t vocab);
// The trial of the launch that chooses under a mask.
Request trial_of_mask(DType logits, std::int64_t vocab);

// ---- the final admission: of what was chosen, where it is used

// The trial as it is used, with the extents, the grid and the context that the package has, and the
// quick trial again in a build that looks for races, where the kernel can have some. All must be
// admitted. What is too much work is cut, and Request::left_open says so. Nothing where the plan
// cannot be tried by itself.
std::optional<std::vector<Request>> confirmation_of(const StepGraph& step,
                                                    const std::optional<Wanted>& wanted,
                                                    const Candidate& candidate,
                                                    const TrialSetting& at);
std::vector<Request> confirmation_of_fallback(const StepGraph& step, const Region& region,
                                              const TrialSetting& at);
std::vector<Request> confirmation_of_argmax(DType logits, std::int64_t vocab,
                                            const TrialSetting& at);
std::vector<Request> confirmation_of_advance(DType ids, std::int64_t max_tokens,
                                             std::int64_t max_context);
std::vector<Request> confirmation_of_draw(DType logits, std::int64_t vocab);
std::vector<Request> confirmation_of_mask(DType logits, std::int64_t vocab);

}  // namespace ac
