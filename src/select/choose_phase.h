// Stage 9 for one phase: what computes its steps, and the record of why.
#pragma once

#include "select/known.h"
#include "select/select.h"

namespace ac {

struct ChooseOptions {
  SelectOptions select;
  InContextOptions in_context;     // no contexts: whole steps are not timed
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
// `program`: without launches; its states, target and context are what is timed with.
PhaseChoice choose_phase(const PhasePlan& phase, const Program& program,
                         const ChooseOptions& options, Lab& lab, Guide* guide, Progress& progress);
// For Lab::rehearse(): asks what choose_phase() will ask of a phase where it times nothing.
void foresee_phase(const PhasePlan& phase, const Program& program, const ChooseOptions& options,
                   Lab& lab);
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

}  // namespace ac
