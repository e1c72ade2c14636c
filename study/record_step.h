// Times schedules of a step (step_space.h) on the device at hand into a table of one region: the
// step. Of a bounded space every one, once each and in shuffled order; of a space that is too large
// to list, some that are drawn and some that searches come by. One schedule is timed again and
// again in between, so that what drifts can be seen. What is in the file already is not done again.
#pragma once

#include "study/record.h"
#include "tune/step_space.h"

namespace ac::study {

struct StepRecordOptions : RecordOptions {
  std::uint64_t max_points = 4096;
  std::size_t plans = 8;             // of each part, at most
  std::size_t reference_every = 64;  // points between two timings of the reference
  std::uint64_t seed = 1;            // of the order
  // If any of the two, the space is not bounded. So many schedules are drawn, each choice of a site
  // alike likely, and so many others are those that searches come by: sessions of tree search,
  // surrogate and evolution in turn, each from a schedule that is drawn. Blocks of both take turns.
  std::size_t drawn = 0, guided = 0;
  double stop_after = 0;  // seconds; no further schedule is timed then; 0: no limit
};

Recorded record_step(const Model& model, const StepRecordOptions& options, KernelBuilder& builder,
                     const std::filesystem::path& to, Progress& progress);

}  // namespace ac::study
