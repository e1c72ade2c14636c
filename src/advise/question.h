// What an advisor is asked about: one region, with the space of plans that the planner enumerated
// for it. The prompt is made of this and nothing else: no source code, no weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace ac {

// What became of a candidate that was tried before the question.
struct Tried {
  std::string candidate;
  double predicted = 0;            // microseconds
  std::optional<double> measured;  // likewise
  std::string verdict;             // "admitted", "not_compiled", ...
  std::string why;
};

// One way of cutting the neighbourhood that the region is part of.
struct FusionChoice {
  std::string text;  // "rms_norm+linear | silu"
  std::optional<double> microseconds;
  bool current = false;                       // the cut that the region comes from
  std::size_t neighbourhood = 0, option = 0;  // in Plans
};

struct Question {
  std::string phase;  // "prefill", "decode"
  const StepGraph* step = nullptr;
  Wanted wanted;
  DeviceInfo device;
  Bindings at;
  int uses = 1;      // equal regions in the step
  double share = 0;  // of the step's predicted time, all uses together
  std::string why;   // it is asked at all

  Space space;                   // as the compiler uses it: bounded, best first
  std::vector<Candidate> legal;  // the whole space, best first; holds all of the above
  std::vector<FusionChoice> fusions;
  std::vector<Tried> tried;  // not empty: a diagnosis is wanted

  const Candidate* find(std::string_view id) const;
};

// "rms_norm+linear+argmax"
std::string ops_text(const Wanted& wanted);

}  // namespace ac
