// The compiler: from a captured model to all that a package holds.
#pragma once

#include "advise/advisor.h"
#include "capture/model.h"
#include "compile/phases.h"
#include "compile/stages.h"
#include "lab/package_check.h"
#include "plan/planner.h"
#include "program/program.h"
#include "select/known.h"
#include "select/pinned.h"
#include "tuning/log.h"

namespace ac {

// Where candidates are timed; empty where they are not.
struct MadeOn {
  std::string device;   // tuning::fingerprint()
  std::string toolkit;  // "NVRTC 13.0, cuBLASLt 13.1.0"
};

struct CompileOptions {
  DeviceInfo device;                   // planned and built for; "host" or a GPU
  bool here = true;                    // whether it is in this machine: candidates are timed then
  std::optional<DType> dtype;          // to compute in; nothing: what the model says
  KvStorage kv = KvStorage::elements;  // how keys and values are stored
  std::int64_t max_context = 0;        // 0: 4096
  std::optional<std::int64_t> chunk;   // tokens of a prefill step; none: 2048 on a GPU, else 128
  // Prefill steps of up to twice so many tokens, where that is less than a chunk, are run by
  // kernels that are chosen for so many; 0: by those of whole chunks.
  std::int64_t short_prompt = 128;
  std::int64_t all_logits = 0;  // tokens of the longest step with the logits of each; 0: none
  std::int64_t slots = 1;       // sequences that can have their steps together
  double slots_cost = 1;        // percent that a step of one may take longer for that
  std::vector<PhaseSpec>
      phases;  // instead of those that phases_of() makes of chunk and short_prompt
  std::size_t max_candidates = 64;
  std::vector<std::string> families;  // of kernels that are tried; none: all
  bool fuse = true;
  // Candidates of a region that are tried, best first, before it is left to the fallback; 0: none.
  std::optional<std::size_t> tries;
  // Nothing is timed or chosen for each context: kernels of the cost model's choice, admitted and
  // checked like any others, so that there is something to run soon.
  bool quick = false;
  // For whole decode steps, at each context; 0: regions are timed alone.
  std::optional<std::chrono::seconds> step_seconds;
  unsigned jobs = 1;
  std::filesystem::path cache;
  Advisor* advisor = nullptr;  // none: the cost model alone decides what is tried
  Preferred preferred;         // tried before all others
  // By the name of a phase. Those that are not here are searched.
  std::map<std::string, Pinned> pinned;
  MadeOn made_on = {};
  std::vector<KnownChoices> known;  // of this device
  // Hears of what is judged and timed, where the device is here; null: nobody does.
  tuning::Log* log = nullptr;
};

struct Compiled {
  Program program;
  DType own_dtype = DType::f32, dtype = DType::f32;  // of the model as captured, and as compiled
  std::vector<std::byte> constants;
  std::map<std::string, Built> kernels;  // those that run
  std::vector<CompiledPhase> phases;
  StepGraph step;  // of any number of tokens, with the logits of the last one
  std::vector<StageTime> times;
  Selection draw;      // what draws a token in all phases
  Selection mask;      // what chooses one under a mask
  PackageCheck check;  // of the whole program
  MadeOn made_on;
  bool is_measured() const;  // all phases are
  std::string advisor = "none";
  double advise_share = 0;  // from which on regions were asked about
};

// Stages 2 to 9; those before and after it run through the same `stages`.
Compiled compile(const Model& model, const CompileOptions& options, KernelBuilder& builder,
                 Stages& stages);

}  // namespace ac
