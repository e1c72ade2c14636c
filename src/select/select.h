// Stage 9 for one step: the experiments that decide how it is cut into regions, and what computes
// each. Candidates are tried in the order of their predicted cost. Where the device is here, they
// are timed first (on the host device beside the fallback: what is slower is not judged), and the
// fastest that the gate admits race with each other and the fallback, which stays unless one is
// faster; elsewhere the first one that is admitted is taken. What is measured scales what is
// predicted of the rest, and when another cut of the step looks cheaper by that, it is tried too.
// What was found out is the evidence; what is chosen follows from that alone (decide.h).
#pragma once

#include <set>

#include "admit/trials.h"
#include "families/list.h"
#include "generate/assemble.h"
#include "plan/cover.h"
#include "select/decide.h"
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
  // The gate judges what is chosen, and not what was timed beside it: what is refused then loses
  // its place to what is next. Else all that is timed against each other was admitted before.
  bool judges_late = false;
  // Of the candidates that were timed together, the fastest that are timed once more, longer.
  std::size_t raced = 64;
  tuning::Log* log = nullptr;
  std::int64_t max_context = 0;  // of the package: for confirm()
};

class Selector {
 public:
  // `guide`: null without an advisor.
  Selector(const PhasePlan& phase, const std::vector<StateSpec>& states, SelectOptions options,
           Lab& lab, Guide* guide = nullptr);

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
  void take(NearCut cut, Progress& progress);

  // After run(): all that was admitted and could compute the step, each part's winner first.
  Alternatives alternatives() const;
  // Of the parts that are chosen from them.
  std::vector<PartChoice> choices(const ContextChoice& chosen) const;
  // Whether what was chosen from them is admitted as it is used. What is not is given up for what
  // is next, and the alternatives are others then.
  bool confirm(const std::vector<ContextChoice>& chosen, Progress& progress);
  // The same of what is pinned, where it is an error (job_failed).
  void confirm_pinned(const std::vector<ContextChoice>& chosen, Progress& progress);
  // Where the gate judges late: all that is left to judge, as something is wrong with one of them.
  // False if none was refused; else others take their places, and race_left() has them timed.
  bool judge_left(Progress& progress);
  void race_left(Progress& progress);

  // What was chosen from the alternatives for each context, with the evidence for it; and what was
  // tried for cuts that another one has beaten.
  std::vector<Selection> selections(const std::vector<ContextChoice>& chosen) const;
  std::vector<Abandoned> abandoned() const;
  // The phase's, and those that cuts, an advisor or a schedule added.
  const Plans& plans() const { return plans_; }

 private:
  // How far a space's candidates were tried.
  struct Agenda {
    std::size_t next = 0;     // in the order
    std::size_t leaders = 0;  // that are to be admitted, of those that were timed
    bool timed = false;
    std::vector<int> fixed;          // of what is pinned: what the variants take
    std::vector<std::string> ops;    // of what was tried
    std::map<int, Request> put_off;  // by candidate: what shall be judged once it is chosen
  };

  // In place of a signature: what chooses the token has no node to name it.
  static constexpr const char* kArgmax = "argmax";

  std::vector<CoverPart> cut();
  std::vector<CoverPart> layers_together() const;
  std::vector<CoverPart> planned(std::vector<CoverPart> cover);
  void add_space();
  bool is_to_be_timed(const CoverPart& part) const;
  std::vector<KernelSource> sources_of(const CoverPart& part) const;
  bool time_all(const std::vector<CoverPart>& parts, Progress& progress);
  void time_space(const CoverPart& part, Progress& progress);
  bool is_on_host() const { return plans_.device.sm == 0; }
  std::int64_t timed_tokens(const CoverPart& part) const;
  MeasureOptions measure_options(const CoverPart& part, std::int64_t position) const;
  Lab::Race run_race(const std::vector<Contender>& contenders, const MeasureOptions& options);
  std::optional<double> hoped_cost(int space) const;
  std::vector<std::size_t> order_of(const Space& space) const;
  bool try_all(const std::vector<CoverPart>& parts, Progress& progress);
  bool try_next(const std::vector<CoverPart>& parts, Progress& progress);
  void diagnose(const std::set<int>& failed, Progress& progress);
  bool race(const std::vector<CoverPart>& parts, Progress& progress);
  TrialSetting trial_setting() const;
  std::string so_far() const;
  Generated generate_for(const CoverPart& part, const Candidate& candidate) const {
    return ac::generate_for(step(), part.wanted, candidate.choice, plans_.options.at, setting_);
  }
  std::size_t missing(int space) const;
  bool judges_late(int space) const {
    return options_.judges_late && lab_.measures() && agenda_[at(space)].fixed.empty();
  }
  void put_off(int space, std::size_t candidate, Request request);
  SpaceEvidence::Judged& judged_of(const CoverPart& part, int candidate);
  std::vector<int> racers_of(const CoverPart& part) const;
  bool judge(const std::vector<CoverPart>& parts, Progress& progress);
  void admit_fallbacks(const std::vector<CoverPart>& parts, Progress& progress);
  void build_fallbacks(const std::vector<CoverPart>& parts);
  bool is_fallback(const CoverPart& part) const { return winner_of(evidence_of(part)) < 0; }
  Generated fallback_for(const CoverPart& part) const;
  Implemented implement(const CoverPart& part, int candidate) const;  // -1: the fallback
  std::vector<int> options_of(const CoverPart& part) const;
  Selection select(const CoverPart& part, const std::vector<ContextChoice>& chosen,
                   std::size_t site) const;
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
  void admit_left(Progress& progress);  // fallbacks of the parts that are left to them
  std::vector<std::string> fallback_signatures(const CoverPart& part) const;
  void log(const CoverPart& part, const Candidate& candidate, search::Verdict verdict,
           const std::string& why, const std::vector<double>& samples, std::int64_t tokens,
           std::int64_t position) const;
  void log_failure(const CoverPart& part, const Candidate& candidate, const Outcome& outcome) const;
  void log_quick(const CoverPart& part, const std::vector<std::size_t>& candidates,
                 const Lab::Race& race, const MeasureOptions& options) const;
  void log_race(const CoverPart& part, const std::vector<int>& candidates, const Lab::Race& race,
                const MeasureOptions& options) const;
  int index_of(const CoverPart& part, const std::string& id);
  static std::size_t at(int space) { return static_cast<std::size_t>(space); }
  const Space& space_of(const CoverPart& part) const { return plans_.spaces[at(part.space)]; }
  const Candidate& candidate_of(const CoverPart& part, int candidate) const {
    return space_of(part).candidates[static_cast<std::size_t>(candidate)];
  }
  const SpaceEvidence& evidence_of(const CoverPart& part) const {
    return evidence_.spaces[at(part.space)];
  }
  const StepGraph& step() const { return phase_.regions.step; }
  const TensorType& logits() const { return step().graph.type(step().graph.outputs.at(0).node); }

  const PhasePlan& phase_;
  Plans plans_;
  const std::vector<StateSpec>& state_specs_;
  const Setting setting_;
  const SelectOptions options_;
  Lab& lab_;
  Guide* const guide_;
  const UseDef uses_;
  Evidence evidence_;
  std::vector<Agenda> agenda_;  // by space
  // Cuts that leave layers apart are searched first; then those with layers in one launch are, too.
  bool may_take_layers_ = false;
  std::vector<CoverPart> parts_;  // what run() decided on
};

}  // namespace ac
