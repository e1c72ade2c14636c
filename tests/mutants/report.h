// What results of mutants say: the kill rate of each family, and the survivors.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace ac::mutants {

// Mutants that differ from the kernel in nothing that it promises, each with the argument, by id:
// lines "ID: argument" (lines with # are comments). An error names a line without an argument.
std::map<std::string, std::string> read_arguments(const std::filesystem::path& file);

struct Rate {
  int killed = 0, survived = 0;  // their sum is the denominator
  int equal = 0, argued = 0;     // equivalent: the same code, or by an argument
  int no_trial = 0, not_compiled = 0;
  double percent() const { return 100.0 * killed / std::max(killed + survived, 1); }
};

struct Report {
  std::map<std::string, Rate> families;
  Rate all;
  std::vector<Json> survivors;
  std::vector<std::string> refuted;  // ids that have an argument, and were killed
};
Report report_of(const std::vector<Json>& results,
                 const std::map<std::string, std::string>& equivalent);
std::vector<Json> read_results(const std::filesystem::path& file);
std::string markdown(const Report& report);
// The same for a terminal: one line a family, then the survivors' ids with their lines.
std::string text(const Report& report);

}  // namespace ac::mutants
