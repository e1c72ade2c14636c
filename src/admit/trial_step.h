// What all trials of a region are made of: the region as a step of its own, and a candidate's plan
// for that.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "admit/request.h"
#include "plan/space.h"

namespace ac {

// Tokens where those of a block do not say how many, tokens behind the last whole block, and rows
// of a table.
constexpr std::int64_t kFewTokens = 32, kTailTokens = 5, kFewIds = 1000;

// The tables of embeddings with no more rows than this.
StepGraph with_short_tables(const StepGraph& step, std::int64_t most);
bool depends_on_tokens(const StepGraph& step);
// Sorted, each once, of those that are in [low, high].
std::vector<std::int64_t> within(std::vector<std::int64_t> values, std::int64_t low,
                                 std::int64_t high);

class TrialStep {
 public:
  TrialStep(StepGraph fragment, int processors)
      : fragment_(std::move(fragment)), processors_(processors) {}

  const StepGraph& fragment() const { return fragment_; }
  Region region() const;
  Setting setting() const {
    return {processors_, std::vector<std::int64_t>(fragment_.states.size(), trial_.capacity)};
  }
  Bindings bindings() const { return {.T = trial_.tokens, .P = trial_.positions.back()}; }
  std::int64_t flops(const Bindings& at) const { return flops(fragment_, at); }
  std::int64_t elements() const { return elements(fragment_); }
  Request finish(std::string name, Generated made, std::vector<Launch> alone = {});

 protected:
  static std::int64_t flops(const StepGraph& step, const Bindings& at);
  std::int64_t elements(const StepGraph& step) const;  // of its states and weights
  void set_limits();                                   // of ids, and what the trial's step is

  StepGraph fragment_;
  int processors_;
  Trial trial_;
};

// What of a wanted region is tried as a step of its own: of many layers, few.
StepGraph tried_fragment(const StepGraph& step, const Wanted& wanted, const Extent& extent);

// The candidate's plan for the fragment, in launches for so many sequences, if the family computes
// that and the plan fits.
std::optional<Generated> regenerate(const TrialStep& trial, const Wanted& wanted,
                                    const Candidate& candidate, int rows);

// What computes one token by itself, if the family promises the bits of that to each of several.
// The trial has the buffers and sources of `made`, which get those that are missing.
std::vector<Launch> alone_launches(const TrialStep& trial, const Wanted& wanted,
                                   const Candidate& candidate, Generated& made);

// ---- what is no region of a step

// The trial of a kernel that chooses the largest of `vocab` logits.
using GenerateChoice =
    std::function<Generated(const StepGraph& step, NodeId logits, const Setting& setting)>;
Request trial_of_choice(const std::string& name, DType logits, std::int64_t vocab, int processors,
                        const GenerateChoice& generate);
// The trial of the kernel that ends a step of `tokens` tokens. Its log has `logged` positions.
Request trial_of_ending(DType ids, std::int64_t tokens, std::int64_t logged);
// The trial of the launches that draw a token from `vocab` logits.
Request trial_of_drawing(DType logits, std::int64_t vocab);
// The trial of the launch that chooses under a mask.
Request trial_of_masking(DType logits, std::int64_t vocab);

}  // namespace ac
