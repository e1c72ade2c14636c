// plan.json as others read it: with distrust, as a package may come from anywhere.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "admit/trial.h"
#include "base/error.h"
#include "base/json.h"
#include "build/compile.h"
#include "compile/phases.h"
#include "program/program.h"
#include "runtime/package_files.h"
#include "select/pinned.h"

namespace ac {

constexpr int kPlanFormat = 10;

// What was selected for a region, and what admitted it.
struct Selected {
  std::string phase;  // as phases_of() has it; "draw" and "mask" for what all end with on
                      // request
  std::string signature;
  std::string ops;         // "rms_norm+linear": for people
  std::string candidate;   // empty: the fallback
  bool admitted = false;   // by what the plan says itself; of a fallback, that it has trials
  bool confirmed = false;  // by the final admission, likewise
  std::vector<Trial> trials;
};

struct PlanFile {
  std::string target;
  std::map<std::string, KernelSource> kernels;  // by entry
  std::vector<Selected> selections;
  std::string step;  // Compiled::step, printed
};

// Runs what reads a plan.json. Where that has not what `compile` writes today, the error
// (bad_input) says what to do about it.
template <class Action>
auto reading_plan(const std::string& origin, Action&& action) {
  try {
    return action();
  } catch (const Json::exception& error) {
    bad_input("{}: not as this program writes it: compile the model again ({})", origin,
              error.what());
  }
}

// plan.json of a package, as it is; its digest and format are checked, and no more.
Json read_plan_json(const PackageFiles& files);
PlanFile plan_file(const Json& json, const std::string& origin);
// What it says of each phase, with the phase's name.
std::vector<std::pair<std::string, const Json*>> phases_of(const Json& plan);
// What plan.json says of the phase of this name.
const Json& phase_in(const Json& plan, const std::string& name);
// The phases of a package, to be compiled again: their steps are the program's.
std::vector<PhaseSpec> specs_of(const Program& program, const Json& plan,
                                const std::string& origin);
// What computes a phase of this name, to be compiled like that again.
Pinned pinned_as(const Json& plan, const std::string& phase, const std::string& origin);

}  // namespace ac
