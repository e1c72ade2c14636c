// Improves a package: a search over the candidates of each region of its decode step, measured on
// the device at hand, then a compilation that tries what was found before anything else. What the
// tuning database knows already is not measured again, so that interrupted work goes on where it
// was.
#pragma once

#include "advise/advisor.h"
#include "compile/compile.h"
#include "search/run.h"
#include "tune/workshop.h"
#include "tuning/database.h"

namespace ac {

struct TuneOptions : tune::WorkshopOptions {
  std::string search = "tree";
  search::Budget budget{.attempts = 32};  // of each region
  std::uint64_t seed = 1;
  std::string device_name;         // for the database
  std::filesystem::path database;  // a file
  std::filesystem::path sources;   // the folder that holds kernels/
  Advisor* advisor = nullptr;      // its candidates are tried in turn with the search's; null: none
};

struct TunedRegion {
  std::string signature, description;
  int uses = 0;
  std::size_t attempts = 0, known = 0;  // of which the database knew
  std::size_t advised = 0;              // candidates that the advisor named
  std::optional<double> first, best;    // microseconds: of the first that was measured, of the best
  std::string plan;                     // of the best
};

// The best plans of each region, for CompileOptions::preferred, best first.
struct Tuned {
  std::vector<TunedRegion> regions;
  Preferred preferred;
};

Tuned tune_regions(const Model& model, const TuneOptions& options, KernelBuilder& builder,
                   Progress& progress);

}  // namespace ac
