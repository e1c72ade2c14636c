// Admission again: whether a package is what its plan says, and whether its kernels, built from
// their sources on this machine, still pass the gate.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "emit/plan_file.h"
#include "lab/lab.h"
#include "lab/package_check.h"
#include "program/program.h"
#include "runtime/package_files.h"

namespace ac {

struct Judged {
  std::string phase, signature, ops;
  std::string candidate;  // empty: the fallback
  Outcome outcome;
};

struct Verification {
  std::vector<std::string> faults;  // what does not agree with the plan, for people
  std::vector<Judged> trials;
  std::string judged_on;  // "host", "sm_90"
  PackageCheck whole;     // if nothing else is wrong
  std::size_t rejected() const;
  bool ok() const { return faults.empty() && rejected() == 0 && whole.ok(); }
};

// What does not agree with the plan, before any kernel runs: files that were changed, a checkpoint
// that is not the one that was compiled (`weights`: where it is now; empty: where it was).
std::vector<std::string> disagreements(const PackageFiles& files, const Program& program,
                                       const PlanFile& plan, const std::filesystem::path& weights,
                                       const std::function<void(const std::string&)>& warn);

// Every kernel is built from its source in plan.json and the package's own headers, and every trial
// is run, whatever is known from before: on `device`, which is in this machine, as compilation for
// it admits kernels. `building`: the caches of built kernels and the compilers. A file that makes
// no sense is an error (bad_input). Then the whole program runs beside one of plain kernels
// (lab/package_check.h), and with `with_truth` beside double precision.
Verification verify_package(const PackageFiles& files, BuilderOptions building,
                            const DeviceInfo& device, Progress& progress,
                            const std::filesystem::path& weights = {},
                            const std::function<void(const std::string&)>& warn = {},
                            bool with_truth = false);

Json to_json(const Verification& verification);
std::string print(const Verification& verification);

}  // namespace ac
