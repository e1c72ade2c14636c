// Times every schedule of a bounded step space (step_space.h) on the device at hand, once each and
// in shuffled order, into a table of one region: the step. One of them is timed again and again in
// between, so that what drifts can be seen. What is in the file already is not done again.
#pragma once

#include "study/record.h"
#include "tune/step_space.h"

namespace ac::study {

struct StepRecordOptions : RecordOptions {
  std::uint64_t max_points = 4096;
  std::size_t plans = 8;             // of each part, at most
  std::size_t reference_every = 64;  // points between two timings of the reference
  std::uint64_t seed = 1;            // of the order
};

Recorded record_step(const Model& model, const StepRecordOptions& options, KernelBuilder& builder,
                     const std::filesystem::path& to, Progress& progress);

}  // namespace ac::study
