// After assembly: whether the whole program computes what one plain kernel an op computes, on the
// same device, with the same weights and tokens. The gate judges parts, each by itself and small;
// this is how they are put together, at their real sizes, with the state that steps leave for each
// other, up to the largest context.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/progress.h"
#include "build/compile.h"
#include "ir/step_graph.h"
#include "program/program.h"

namespace ac {

class Lab;

struct PackageCheck {
  bool done = false;
  std::string why_not;     // done; for people
  std::string fault;       // empty: none was found
  std::string why_random;  // empty: the weights were its own
  std::int64_t compared = 0;
  std::int64_t most_tokens = 0, last_position = 0;  // of a step, and after it
  double worst = 0;                                 // over the bound
  std::string worst_case;
  std::vector<std::string> left_out;  // as more work than it is worth
  bool with_truth = false;            // compared with double precision too
  std::string why_no_truth;           // though it was asked for
  bool ok() const { return fault.empty(); }
};
Json to_json(const PackageCheck& check);
// That it says either what it did or why it did nothing.
void verify(const PackageCheck& check, const std::string& origin);
// One line of what was found, of a plan.json or of now.
std::string summary_of(const Json& check);

struct PackageCheckOptions {
  std::filesystem::path checkpoint = {};  // where it is now; empty: where it was
  bool verifies = false;                  // it may take longer
  bool quick = false;                     // it shall take less
  bool with_truth = false;                // where the model is small enough
  // While kernels are judged: it leaves them memory or is not done, and looks for no one to blame.
  bool beside_judges = false;
};

// What it builds.
std::vector<KernelSource> check_sources(const Program& program, const StepGraph& step);

// On the device that the package is for, which is the one that `lab` has: that builds the
// plain kernels. `step`: the program's prefill instance.
PackageCheck check_package(const std::filesystem::path& package, const Program& program,
                           const StepGraph& step, Lab& lab, Progress& progress,
                           const PackageCheckOptions& options = {});

}  // namespace ac
