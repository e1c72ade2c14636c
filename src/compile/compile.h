// The compiler: from a captured model to all that a package holds.
#pragma once

#include "capture/model.h"
#include "compile/progress.h"
#include "compile/realise.h"
#include "plan/planner.h"
#include "program/program.h"

namespace ac {

// Candidates, best first, by the signature of the region: what a search has found.
using Preferred = std::map<std::string, std::vector<std::string>>;

struct CompileOptions {
  DeviceInfo device;             // planned and built for; "host" or a GPU
  bool here = true;              // whether it is in this machine: candidates are timed then
  std::int64_t max_context = 0;  // 0: 4096
  std::int64_t chunk = 512;      // tokens of a prefill step
  std::size_t max_candidates = 64;
  std::size_t tries = 3;  // candidates of a region, best first, before it is left to the fallback
  unsigned jobs = 1;
  std::filesystem::path cache;
  Preferred preferred;  // tried before all others
};

// What became of one candidate.
struct Attempt {
  std::string candidate;
  double predicted = 0;            // microseconds
  std::optional<double> measured;  // microseconds, in a race with the others of the region
  Outcome outcome;
};

// What became of one region and all that are equal to it.
struct Selection {
  std::string signature;
  std::vector<std::string> ops;
  Category category = Category::mixed;
  bool argmax = false;
  int uses = 0;           // equal regions in the step
  std::string candidate;  // empty: the fallback
  std::string family;     // "fallback" there
  double predicted = 0;
  std::optional<double> measured, fallback_measured;
  std::string why_unmeasured;  // if a race was wanted and none took place
  Amount work;                 // of one
  std::vector<std::string> kernels;
  std::vector<Attempt> attempts;
  std::vector<Json> trials;  // of what was selected
  std::size_t enumerated = 0, legal = 0;
  std::map<std::string, std::size_t> illegal;
  std::vector<Refusal> refusals;
};

struct CompiledPhase {
  std::size_t nodes = 0;  // of the step
  Regions regions;
  Plans plans;
  std::vector<Selection> selections;
};

struct Compiled {
  Program program;
  std::vector<std::byte> constants;
  std::map<std::string, Built> kernels;  // those that run
  CompiledPhase prefill, decode;
};

Compiled compile(const Model& model, const CompileOptions& options, KernelBuilder& builder,
                 Progress& progress);

}  // namespace ac
