// Improves a package by the latency of its whole decode step: a search over the step's schedules
// (tune/step_space.h), each of them timed as a step. What the tuning database knows is not timed
// again, so that interrupted work goes on where it was. A schedule is taken only if all of its
// kernels are admitted and a last race against the package's own shows that it pays.
#pragma once

#include "advise/proposals.h"
#include "search/run.h"
#include "select/pinned.h"
#include "tune/step_workshop.h"
#include "tune/tune.h"

namespace ac {

struct StepTuneOptions : TuneOptions {
  std::size_t plans = 4;  // of each part of the step
  // Who proposes changes while the step is searched; null: nobody.
  Provider* proposer = nullptr;
  search::ProposalOptions proposals;
  bool takes_requests = false;  // of who proposes, for values that the space lacks
};

struct TunedStep {
  std::string signature;
  std::size_t sites = 0;                // with more than one choice
  std::size_t attempts = 0, known = 0;  // of which the database knew
  std::size_t advised = 0;              // schedules that the advisor's replies come to
  std::vector<ProposalCall> calls;      // of who proposes changes
  std::size_t failed = 0;               // that could not be timed
  search::Trace trace;                  // all attempts, in order
  double first_us = 0;                  // of the package's schedule, when the search began
  std::string plan;                     // the best that was found; empty: the package's own
  // Of the last race, if there was one.
  std::optional<double> before_us, best_us;
  // What the decode step is to be made of now; nothing if it stays as it is.
  std::optional<Pinned> decode;
};

// `program`, `decode`: the package's. Its steps after options.context tokens are searched; those of
// contexts that have other kernels stay as they are.
TunedStep tune_step(const Model& model, const Program& program, const Pinned& decode,
                    const StepTuneOptions& options, KernelBuilder& builder, Progress& progress);

}  // namespace ac
