// A phase on its way through the compiler: what it is, what was planned for its step, and what was
// selected.
#pragma once

#include "plan/planner.h"
#include "program/program.h"
#include "select/selection.h"
#include "select/timed_steps.h"

namespace ac {

struct PhaseSpec {
  std::string name = {};                        // "prefill", "prefill to 256", "decode"
  std::int64_t min_tokens = 1, max_tokens = 1;  // of its steps
  std::int64_t tuned_at = 1;                    // tokens of the steps that kernels are chosen by
  std::vector<std::int64_t> contexts = {};      // rising: cached tokens, each with a choice of its
                                                // own; none: one choice, timed from the first on
  Rows rows = Rows::last;
  // Steps of several sequences shall have the same bits: what computes more tokens in about the
  // time of one is taken if it costs one token little.
  bool shared = false;
  bool operator==(const PhaseSpec&) const = default;
};

// What planning gives. Nothing changes it afterwards.
struct PhasePlan {
  PhaseSpec spec;
  Regions regions;
  Plans plans;
};

// With what was selected from it. The plans are then those of selection too: spaces of regions that
// only another cut has, and candidates that an advisor or a schedule named.
struct CompiledPhase : PhasePlan {
  std::vector<Selection> selections;
  std::vector<TimedCut> cuts;  // if there was more than one to choose from
  std::vector<InContext> in_context;
  std::vector<Abandoned> abandoned;
  Selection ending;  // what lets the next step follow: of no region
  std::vector<Advised> advice;
  std::string known;  // the file of known choices that it took; empty: it was selected here
  // Whether every region's choice was timed on the device.
  bool is_measured() const;
};

}  // namespace ac
