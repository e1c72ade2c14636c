// Stage 9 for one step: which regions it is cut into, and what computes each. Candidates are tried
// in the order of their predicted cost; a region that no candidate was admitted for is left to the
// fallback, or the step is cut differently.
#pragma once

#include "compile/assemble.h"
#include "compile/compile.h"
#include "compile/cover.h"
#include "compile/trials.h"

namespace ac {

class Selector {
 public:
  // Plans of what the cover cuts differently from all that was planned are added to the phase's.
  Selector(CompiledPhase& phase, Setting setting, std::size_t tries, Realiser& realiser);

  // In the order in which they run. Fills in the phase's selections.
  std::vector<Implemented> run(Progress& progress);

 private:
  struct State {
    std::size_t next = 0;  // candidate to be tried
    int winner = -1;
    std::vector<Attempt> attempts;
    std::optional<Trial> trial;
  };

  std::optional<double> cost(int space) const;
  void plan_missing(std::vector<CoverPart>& parts);
  bool try_next(const std::vector<CoverPart>& parts, Progress& progress);
  void admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress);
  bool is_fallback(const CoverPart& part) const;
  Implemented implement(const CoverPart& part) const;
  void record(const std::vector<CoverPart>& parts);
  Space& space_of(const CoverPart& part) {
    return phase_.plans.spaces[static_cast<std::size_t>(part.space)];
  }
  const StepGraph& step() const { return phase_.regions.step; }

  CompiledPhase& phase_;
  const Setting setting_;
  const std::size_t tries_;
  Realiser& realiser_;
  const UseDef uses_;
  std::vector<State> states_;                    // by space
  std::map<std::string, Json> fallback_trials_;  // by signature of the node's region
};

}  // namespace ac
