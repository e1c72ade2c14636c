// Stage 9 of steps of one token each of several sequences. They compute what decode computes, to
// the bit: a sequence's tokens do not depend on who else is there. So nothing is searched but
// products of several tokens that have the bits of decode's; all else runs for each row as decode
// runs it.
#pragma once

#include "select/choose_phase.h"

namespace ac {

struct TogetherOptions {
  DeviceInfo device;
  std::size_t max_candidates = 64;  // of a product
  std::vector<std::string> families = {};
  std::size_t tries = 24;  // of those
};

// `step`: with the logits of all tokens. `decode`: what was chosen for one token of it. `program`:
// as PhaseChooser takes it.
PhaseChoice choose_together(const PhaseSpec& spec, const StepGraph& step, const PhaseChoice& decode,
                            const Program& program, const TogetherOptions& options, Lab& lab,
                            Progress& progress);

}  // namespace ac
