// The compiler: from a captured model to all that a package holds.
#pragma once

#include "advise/advisor.h"
#include "capture/model.h"
#include "compile/package_check.h"
#include "compile/phases.h"
#include "compile/pinned.h"
#include "compile/realise.h"
#include "compile/stages.h"
#include "plan/planner.h"
#include "program/program.h"
#include "tuning/log.h"

namespace ac {

// Candidates, best first, by the signature of the region: what a search has found.
using Preferred = std::map<std::string, std::vector<std::string>>;

struct CompileOptions {
  DeviceInfo device;                  // planned and built for; "host" or a GPU
  bool here = true;                   // whether it is in this machine: candidates are timed then
  std::optional<DType> dtype;         // to compute in; nothing: what the model says
  std::int64_t max_context = 0;       // 0: 4096
  std::optional<std::int64_t> chunk;  // tokens of a prefill step; none: 2048 on a GPU, else 512
  // Prefill steps of up to twice so many tokens, where that is less than a chunk, are run by
  // kernels that are chosen for so many; 0: by those of whole chunks.
  std::int64_t short_prompt = 128;
  std::int64_t all_logits = 0;  // tokens of the longest step with the logits of each; 0: none
  std::vector<PhaseSpec>
      phases;  // instead of those that phases_of() makes of chunk and short_prompt
  std::size_t max_candidates = 64;
  std::vector<std::string> families;  // of kernels that are tried; none: all
  bool fuse = true;
  // Candidates of a region that are tried, best first, before it is left to the fallback; 0: none.
  std::optional<std::size_t> tries;
  // For whole decode steps, at each context; 0: regions are timed alone.
  std::optional<std::chrono::seconds> step_seconds;
  unsigned jobs = 1;
  std::filesystem::path cache;
  Advisor* advisor = nullptr;  // none: the cost model alone decides what is tried
  Preferred preferred;         // tried before all others
  // By the name of a phase. Those that are not here are searched.
  std::map<std::string, Pinned> pinned;
  // Hears of what is judged and timed, where the device is here; null: nobody does.
  tuning::Log* log = nullptr;
};

// What became of one candidate.
struct Attempt {
  std::string candidate;
  double predicted = 0;            // microseconds
  std::optional<double> measured;  // microseconds, in a race with the others of the region
  Outcome outcome;
};

// What the final admission said of what was chosen.
struct Confirmed {
  std::string what;  // a candidate, or the fallback of an op
  Purpose purpose = Purpose::as_used;
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
  std::vector<Confirmed> confirmed;
  std::size_t enumerated = 0, legal = 0;
  std::map<std::string, std::size_t> illegal;
  std::vector<Refusal> refusals;
  // If it differs by context: the candidate from so many tokens on.
  std::vector<std::pair<std::int64_t, std::string>> by_context;
};

// For `compile --dump selection`.
std::string print(const std::vector<Selection>& selections);

// A region of a cut of the step that was tried, and given up for another cut.
struct Abandoned {
  std::string signature;
  std::vector<std::string> ops;
  std::vector<Attempt> attempts;
};

// What an advisor was asked about one region, and what became of its reply.
struct Advised {
  std::string signature, ops;
  std::string why;         // it was asked
  double share = 0;        // of the step's predicted time
  bool diagnosis = false;  // after candidates had failed
  std::string prompt_hash;
  Reply reply;
  std::string label;
  std::vector<std::string> order;     // ids of candidates
  std::vector<std::string> thorough;  // those that are validated more; "*": all
  std::vector<AuditItem> audit;
};

struct CompiledPhase {
  PhaseSpec spec;
  std::size_t nodes = 0;  // of the step
  Regions regions;
  Plans plans;
  std::vector<Selection> selections;
  std::vector<TimedCut> cuts;  // if there was more than one to choose from
  std::vector<InContext> in_context;
  std::vector<Abandoned> abandoned;
  Selection ending;  // what lets the next step follow: of no region
  std::vector<Advised> advice;
  // Whether every region's choice was timed on the device.
  bool is_measured() const;
};

struct Compiled {
  Program program;
  DType own_dtype = DType::f32, dtype = DType::f32;  // of the model as captured, and as compiled
  std::vector<std::byte> constants;
  std::map<std::string, Built> kernels;  // those that run
  std::vector<CompiledPhase> phases;
  StepGraph step;  // of any number of tokens, with the logits of the last one
  std::vector<StageTime> times;
  Selection draw;            // what draws a token in all phases
  PackageCheck check;        // of the whole program
  bool is_measured() const;  // all phases are
  std::string advisor = "none";
  double advise_share = 0;  // from which on regions were asked about
};

// Stages 2 to 9; those before and after it run through the same `stages`.
Compiled compile(const Model& model, const CompileOptions& options, KernelBuilder& builder,
                 Stages& stages);

}  // namespace ac
