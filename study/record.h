// Times every point of the bounded spaces of a model's step on the device at hand, so that
// searches can be replayed without it. What is in the file already is not done again.
#pragma once

#include "base/progress.h"
#include "tune/workshop.h"
#include "tuning/log.h"

namespace ac::study {

struct RecordOptions : tune::WorkshopOptions {
  bool admit_all = true;       // else only the fastest of each region, until one is admitted
  std::size_t batch = 256;     // points that race in one process
  Json header;                 // what the file says of device, driver, commit, command, date
  tuning::Log* log = nullptr;  // hears of every point; null: nobody does
};

struct Recorded {
  std::size_t regions = 0, points = 0, new_points = 0, measured = 0;
};

// The first line of a table.
Json common_header(const RecordOptions& options, KernelBuilder& builder, const std::string& model);

// A file of another model, device, toolkit or context is an error (wrong_usage).
Recorded record(const Model& model, const RecordOptions& options, KernelBuilder& builder,
                const std::filesystem::path& to, Progress& progress);

}  // namespace ac::study
