// Stage 9 for one step: which regions it is cut into, and what computes each. Candidates are tried
// in the order of their predicted cost. Where the device is here, they are timed first (on the host
// device beside the fallback: what is slower is not judged), and the fastest that the gate admits
// race with each other and the fallback, which stays unless one is faster; elsewhere the first one
// that is admitted is taken. What is measured scales what is predicted of the rest, and when
// another cut of the step looks cheaper by that, it is tried too.
#pragma once

#include <set>

#include "admit/trials.h"
#include "generate/assemble.h"
#include "generate/generate_for.h"
#include "plan/cover.h"
#include "select/guide.h"
#include "select/in_context.h"
#include "select/phase.h"
#include "select/pinned.h"
#include "tuning/log.h"

namespace ac {

struct SelectOptions {
  std::size_t tries = 3;    // candidates of a region
  std::size_t leaders = 3;  // of those that were timed, so many are to be admitted
  // Tokens before the step's, with which attention is timed.
  std::vector<std::int64_t> contexts = {};
  Preferred preferred = {};  // tried before all others
  tuning::Log* log = nullptr;
  std::int64_t max_context = 0;  // of the package: for confirm()
};

class Selector {
 public:
  // Plans of what the cover cuts differently from all that was planned are added to the phase's.
  // `guide`: null without an advisor.
  Selector(CompiledPhase& phase, const std::vector<StateSpec>& states, SelectOptions options,
           Realiser& realiser, Guide* guide = nullptr);

  void run(Progress& progress);
  // What run() builds first, where all that is tried is timed: for whoever can do it ahead.
  std::vector<KernelSource> first_sources();
  // Instead: what the variants say, which cut the step alike. What is not admitted is an error
  // (job_failed). One choice for each variant.
  std::vector<ContextChoice> run_pinned(const std::vector<Pinned::Variant>& variants,
                                        Progress& progress);

  // After run(): what it decided on, and the cuts that may be as fast by what was measured of their
  // parts; each with its parts' winners; and one of them instead of run()'s.
  std::vector<NearCut> near_cuts();
  Cuts as_implemented(const std::vector<NearCut>& cuts) const;
  void take(NearCut cut);

  // After run(): all that was admitted and could compute the step, each part's winner first.
  Alternatives alternatives() const;
  // Whether what was chosen from them is admitted as it is used. What is not is given up for what
  // is next, and the alternatives are others then.
  bool confirm(const std::vector<ContextChoice>& chosen, Progress& progress);
  // The same of what is pinned, where it is an error (job_failed).
  void confirm_pinned(const std::vector<ContextChoice>& chosen, Progress& progress);
  // Fills in the phase's selections: what was chosen from the alternatives for each context.
  void record(const std::vector<ContextChoice>& chosen);

 private:
  struct State {
    std::vector<std::size_t> order;  // in which candidates are tried
    std::size_t next = 0;            // in that order
    std::size_t leaders = 0;         // that are to be admitted, of those that were timed
    int winner = -1;
    bool timed = false, raced = false;
    std::optional<double> fallback_measured;
    std::string why_unmeasured;
    std::vector<std::string> ops;  // of what was tried
    std::vector<Attempt> attempts;
    std::map<int, double> quick;           // microseconds by candidate, before any was judged
    std::optional<double> quick_fallback;  // likewise, where it took part
    std::map<int, Trial> trials;           // of those admitted, by candidate
    std::vector<int> fixed;                // of what is pinned: what the variants take
    std::map<int, std::vector<Confirmed>> confirmed;  // by candidate
  };

  // In place of a signature: what chooses the token has no node to name it.
  static constexpr const char* kArgmax = "argmax";

  std::vector<CoverPart> cut();
  std::vector<CoverPart> planned(std::vector<CoverPart> cover);
  bool is_raced(int space) const;
  bool is_to_be_timed(const CoverPart& part) const;
  std::vector<KernelSource> sources_of(const CoverPart& part) const;
  bool time_all(const std::vector<CoverPart>& parts, Progress& progress);
  void time_space(const CoverPart& part, Progress& progress);
  bool is_on_host() const { return phase_.plans.device.sm == 0; }
  std::int64_t timed_tokens(const CoverPart& part) const;
  MeasureOptions measure_options(const CoverPart& part, std::int64_t position) const;
  Realiser::Race run_race(const std::vector<Contender>& contenders, const MeasureOptions& options);
  std::vector<int> leaders(const State& state) const;
  std::optional<double> cost(int space) const;
  State state_for(const Space& space) const;
  void plan_missing(std::vector<CoverPart>& parts);
  bool decide(const std::vector<CoverPart>& parts, Progress& progress);
  bool try_next(const std::vector<CoverPart>& parts, Progress& progress);
  void diagnose(const std::set<int>& failed, Progress& progress);
  bool race(const std::vector<CoverPart>& parts, Progress& progress);
  TrialSetting trial_setting() const;
  std::string so_far() const;
  Generated generate_for(const CoverPart& part, const Candidate& candidate) const {
    return ac::generate_for(step(), part.wanted, candidate.choice, phase_.plans.options.at,
                            setting_);
  }
  std::size_t missing(const State& state) const;
  void admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress);
  bool is_fallback(const CoverPart& part) const { return state_of(part).winner < 0; }
  Generated fallback_for(const CoverPart& part) const;
  Implemented implement(const CoverPart& part, int candidate) const;  // -1: the fallback
  Selection select(const CoverPart& part, const std::vector<ContextChoice>& chosen,
                   std::size_t site) const;
  std::vector<Attempt> attempts_of(std::size_t space) const;
  std::vector<Json> trials_of(const CoverPart& part, int candidate) const;
  std::vector<Confirmed> confirmed_of(const CoverPart& part, int candidate) const;
  // What was chosen and is not admitted as it is used.
  struct Unconfirmed {
    const CoverPart* part;
    int candidate;
    Outcome outcome;
  };
  std::vector<Unconfirmed> unconfirmed(const std::vector<ContextChoice>& chosen,
                                       Progress& progress);
  void give_up(const Unconfirmed& failed);
  void admit_left(Progress& progress);  // fallbacks of the parts that are left to them
  std::vector<std::string> fallback_signatures(const CoverPart& part) const;
  void record_abandoned();
  void log(const CoverPart& part, const Candidate& candidate, search::Verdict verdict,
           const std::string& why, const std::vector<double>& samples, std::int64_t tokens,
           std::int64_t position) const;
  void log_failure(const CoverPart& part, const Candidate& candidate, const Outcome& outcome) const;
  void log_quick(const CoverPart& part, const std::vector<std::size_t>& candidates,
                 const Realiser::Race& race, const MeasureOptions& options) const;
  void log_race(const CoverPart& part, const std::vector<int>& candidates,
                const Realiser::Race& race, const MeasureOptions& options) const;
  int index_of(const CoverPart& part, Space& space, const std::string& id) const;
  const Space& space_of(const CoverPart& part) const {
    return phase_.plans.spaces[static_cast<std::size_t>(part.space)];
  }
  const State& state_of(const CoverPart& part) const {
    return states_[static_cast<std::size_t>(part.space)];
  }
  const StepGraph& step() const { return phase_.regions.step; }
  const TensorType& logits() const { return step().graph.type(step().graph.outputs.at(0).node); }

  CompiledPhase& phase_;
  const std::vector<StateSpec>& state_specs_;
  const Setting setting_;
  const SelectOptions options_;
  Realiser& realiser_;
  Guide* const guide_;
  const UseDef uses_;
  double scale_ = 1;                             // what was measured over what was predicted
  std::vector<State> states_;                    // by space
  std::vector<CoverPart> parts_;                 // what run() decided on
  std::map<std::string, Json> fallback_trials_;  // by signature of the node's region, or kArgmax
  std::map<std::string, std::vector<Confirmed>> confirmed_fallbacks_;  // likewise
};

// What computes a step after so many tokens and more, in order.
struct PinnedVariant {
  std::int64_t from = 0;
  std::vector<Implemented> parts;
};
// All of stage 9 for a phase that is pinned; fills in its selections.
std::vector<PinnedVariant> choose_pinned(CompiledPhase& phase, const std::vector<StateSpec>& states,
                                         const SelectOptions& options, const Pinned& pinned,
                                         Realiser& realiser, Progress& progress);

}  // namespace ac
