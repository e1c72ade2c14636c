// Which phases a package gets: what is planned, chosen, assembled, checked and shown of a phase
// follows from its entry in this list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/step_graph.h"
#include "select/phase.h"

namespace ac {

struct CompileOptions;

// The phases of a package that holds `max_context` tokens. Each step of 1 to
// Program::longest_step() tokens has one phase.
std::vector<PhaseSpec> phases_of(const CompileOptions& options, std::int64_t max_context);
// The phases whose steps have one token each of several sequences, up to options.slots. They follow
// from decode's choice; what is fast for two of them need not be for eight. `longest`: of all other
// steps.
std::vector<PhaseSpec> together_phases(const CompileOptions& options, std::int64_t longest);
// As few of them as can run every step, each with one choice for all contexts.
std::vector<PhaseSpec> quick_phases(std::vector<PhaseSpec> phases);
// The step that a phase plans: that of its tokens, with the logits of its rows.
StepGraph instance_of(const StepGraph& step, const PhaseSpec& phase);

}  // namespace ac
