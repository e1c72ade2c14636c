// Judges mutants as a compilation judges its candidates: each is planted in a copy of the kernels'
// sources, the kernels of trials that it may change are built with the host compiler, and the gate
// says of each trial whether it is admitted. The first rejection kills the mutant.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/device/family_trials.h"
#include "tests/mutants/mutate.h"

namespace ac::mutants {

struct JudgeOptions {
  std::filesystem::path sources;  // the folder that holds kernels/
  std::filesystem::path work;     // what is built of the kernels as they are, for the next time
  std::string compiler = "g++";
  unsigned jobs = 1;
  bool judge_baselines = true;  // else the trials are taken to admit the kernels as they are
  int most_trials = 32;         // that a mutant has to pass
  int cpu_seconds = 60;         // of one judgement
  std::chrono::seconds all{0};  // no mutant is begun after this; 0: none is left out
};

// A trial with its kernels as they are.
struct Baseline {
  test::FamilyTrial trial;
  std::map<std::string, std::filesystem::path> files;    // by entry
  std::map<std::string, std::set<int>> lines;            // by header: those that have code
  std::map<std::string, std::set<std::string>> headers;  // by entry: what it includes
  double seconds = 0;                                    // to build and to judge
};

enum class Outcome : std::uint8_t {
  killed,
  survived,
  equal,        // the same code in every trial
  no_trial,     // no trial has code of the line
  not_compiled  // in any trial
};
std::string_view to_string(Outcome outcome);

class MutantJudge {
 public:
  // Builds and judges the trials as they are; an error if one of them is rejected.
  MutantJudge(std::vector<test::FamilyTrial> trials, JudgeOptions options);

  // Calls `on_done` with each mutant's result as it is known; null for one that was not begun. What
  // could not be judged is said on stderr and left out.
  void judge(const std::vector<Mutant>& mutants,
             const std::function<void(std::size_t, const Json&)>& on_done) const;

  const std::vector<Baseline>& baselines() const { return baselines_; }

 private:
  std::vector<std::size_t> trials_of(const Mutant& mutant) const;
  Json judge_one(const Mutant& mutant) const;

  JudgeOptions options_;
  std::map<std::string, std::string> texts_;  // of the headers, by name
  std::vector<Baseline> baselines_;           // special ones first, the cheapest of them
};

// All headers with mutants, by name: "gemv.cuh". The gate judges no kernel that fills memory or
// measures it.
std::map<std::string, std::string> mutated_headers(const std::filesystem::path& sources);
// Which family's row in the report a header counts for.
std::string family_of_header(const std::string& header);

}  // namespace ac::mutants
