// Stage 9 for one step: which regions it is cut into, and what computes each. Candidates are tried
// in the order of their predicted cost. Where the device is here, all that are admitted race with
// each other and the fallback, which stays unless one is faster; elsewhere the first one that is
// admitted is taken. What is measured scales what is predicted of the rest, and when another cut of
// the step looks cheaper by that, it is tried too.
#pragma once

#include "compile/assemble.h"
#include "compile/compile.h"
#include "compile/cover.h"
#include "compile/trials.h"

namespace ac {

class Selector {
 public:
  // Plans of what the cover cuts differently from all that was planned are added to the phase's.
  Selector(CompiledPhase& phase, const std::vector<CacheSpec>& caches, std::size_t tries,
           const Preferred& preferred, Realiser& realiser);

  // In the order in which they run. Fills in the phase's selections.
  std::vector<Implemented> run(Progress& progress);

 private:
  struct State {
    std::vector<std::size_t> order;  // in which candidates are tried
    std::size_t next = 0;            // in that order
    int winner = -1;
    bool raced = false;
    std::optional<double> fallback_measured;
    std::string why_unmeasured;
    std::vector<Attempt> attempts;
    std::map<int, Trial> trials;  // of those admitted, by candidate
  };

  std::optional<double> cost(int space) const;
  State state_for(const Space& space) const;
  const Candidate& next_of(const State& state, const Space& space) const {
    return space.candidates[state.order[state.next]];
  }
  void plan_missing(std::vector<CoverPart>& parts);
  bool decide(const std::vector<CoverPart>& parts, Progress& progress);
  bool try_next(const std::vector<CoverPart>& parts, Progress& progress);
  bool race(const std::vector<CoverPart>& parts, Progress& progress);
  Generated generate_for(const CoverPart& part, const Candidate& candidate) const;
  bool is_open(const State& state) const;
  void admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress);
  bool is_fallback(const CoverPart& part) const { return state_of(part).winner < 0; }
  Implemented implement(const CoverPart& part) const;
  void record(const std::vector<CoverPart>& parts);
  const Space& space_of(const CoverPart& part) const {
    return phase_.plans.spaces[static_cast<std::size_t>(part.space)];
  }
  const State& state_of(const CoverPart& part) const {
    return states_[static_cast<std::size_t>(part.space)];
  }
  const StepGraph& step() const { return phase_.regions.step; }

  CompiledPhase& phase_;
  const std::vector<CacheSpec>& caches_;
  const Setting setting_;
  const std::size_t tries_;
  const Preferred& preferred_;
  Realiser& realiser_;
  const UseDef uses_;
  double scale_ = 1;                             // what was measured over what was predicted
  std::vector<State> states_;                    // by space
  std::map<std::string, Json> fallback_trials_;  // by signature of the node's region
};

}  // namespace ac
