// The stages of a compilation as its package remembers them, for `inspect PACKAGE --stage ...`.
// They come from plan.json alone, so that a package can be asked anywhere.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace ac {

enum class PackageStage {
  regions,     // what each step was cut into
  candidates,  // the spaces of kernels, ranked by predicted cost
  advice,      // what an advisor was asked, and what became of its replies
  verdicts,    // what became of each candidate that was tried, and of the whole program
  selection,   // what computes each region
  stats,       // how many of all of these, and whose work a step is
};

// `plan`: plan.json; an error (bad_input) names `origin`.
Json stage_json(const Json& plan, PackageStage stage, const std::string& origin);
std::string stage_text(const Json& plan, PackageStage stage, const std::string& origin);

// Of a phase: selections, what was given up with the cut of the step that it belonged to, and what
// ends a step. Each has its attempts; those that were given up have no candidate.
std::vector<const Json*> all_tried(const Json& phase);

// Of stats, for each phase: IR nodes, regions, plans, validated, selected, rejected by reason, and
// the shares of generated, library and fallback implementations in a step's calls, bytes and FLOPs.
Json stats_of(const Json& plan);

}  // namespace ac
