// Stage 9 for one phase: what computes its steps, and the record of why.
#pragma once

#include <optional>
#include <vector>

#include "select/in_context.h"
#include "select/known.h"
#include "select/select.h"

namespace ac {

struct ChooseOptions {
  SelectOptions select;
  InContextOptions in_context;  // no contexts: whole steps are not timed
  // Decode that several sequences share may take so many times as long for one sequence.
  double slowdown = 1;
  const Pinned* pinned = nullptr;  // nothing is searched: this is taken, or an error
  // Of `whole`, likewise; where that is not admitted, the phase is searched as any other.
  const KnownPhase* known = nullptr;

  const Pinned* taken() const {
    return pinned || !known || !known->whole ? pinned : &*known->whole;
  }
};

struct PhaseChoice {
  CompiledPhase record;
  std::vector<StepVariant> variants;  // by rising `from`, the first one's 0
};
// How one phase is chosen: what is to be timed is timed first, and only what is chosen by that is
// judged, so that the judgements of all phases can fill the cores together (Lab::rehearse()).
class PhaseChooser {
 public:
  // `program`: without launches; its states, target and context are what is timed with.
  PhaseChooser(const PhasePlan& phase, const Program& program, ChooseOptions options, Lab& lab,
               Guide* guide = nullptr);

  // Whether the choice is given, by a schedule or as a known one: nothing is searched then.
  bool is_given() const { return options_.taken() != nullptr; }
  // What search() times first.
  std::vector<KernelSource> first_sources() const;
  // Times candidates and whole steps, and chooses by that.
  void search(Progress& progress);
  // Searches first if that was not done, and again where the gate refuses something.
  PhaseChoice choose(Progress& progress);
  // For Lab::rehearse(): what choose() gives if nothing is refused. Nothing where something fails,
  // which choose() will say.
  std::optional<PhaseChoice> foresee() const;

 private:
  struct Searched {
    Selector selector;
    std::vector<TimedCut> cuts;
    Alternatives alternatives;
    InContextChoices chosen;
  };

  std::optional<PhaseChoice> take_known(Progress& progress);
  PhaseChoice choose_searched(Progress& progress);
  void choose_steps(Progress& progress);
  InContextChoices choose_among(const Alternatives& alternatives, Progress& progress);
  InContextChoices choose_for_several(Progress& progress);

  const PhasePlan* phase_;
  const Program* program_;
  ChooseOptions options_;
  Lab* lab_;
  Guide* guide_;
  Implemented last_;  // what ends a step
  std::optional<Searched> searched_;
};
// One variant from the first token on, and selections that are used.
void verify(const PhaseChoice& chosen, const std::string& origin);
// Nothing is chosen that was not built, and admitted in this run.
void require_admitted(const PhaseChoice& chosen, const Lab& lab);

// What a schedule says, and nothing else.
PhaseChoice choose_pinned(const PhasePlan& phase, const std::vector<StateSpec>& states,
                          const SelectOptions& options, const Pinned& pinned, Lab& lab,
                          Progress& progress);

// The launches that draw a token: there is one way to do it.
Selection admit_draw(const Program& program, Lab& lab);
// The launch that chooses under a mask, likewise.
Selection admit_mask(const Program& program, bool of_several, Lab& lab);
// What ends a step of several sequences.
Selection admit_ending_of_rows(const StepGraph& step, const Program& program, Lab& lab);

}  // namespace ac
