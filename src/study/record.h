// Times every point of the bounded spaces of a model's decode step on the device at hand, so that
// searches can be replayed without it. What is in the file already is not done again.
#pragma once

#include "capture/model.h"
#include "compile/progress.h"
#include "compile/realise.h"
#include "device/device_info.h"
#include "plan/space.h"
#include "study/table.h"

namespace ac::study {

struct RecordOptions {
  DeviceInfo device;  // which is in this machine
  std::size_t max_candidates = 256;
  // Parts of the signatures or descriptions of the regions to record; none: all.
  std::vector<std::string> regions;
  bool cover_only = false;      // only the regions that the step is cut into by prediction
  bool admit_all = true;        // else only the fastest of each region, until one is admitted
  std::int64_t context = 1024;  // tokens in the cache
  int rounds = 5;
  double seconds = 0.005;  // of one round of one point, about
  std::size_t batch = 64;  // points that race in one process
  unsigned jobs = 1;
  std::filesystem::path cache;
  Json header;  // what the file says of device, driver, toolkit, commit, command, date
};

struct Recorded {
  std::size_t regions = 0, points = 0, new_points = 0, measured = 0;
};

// A file of another model, device, toolkit or context is an error (wrong_usage).
Recorded record(const Model& model, const RecordOptions& options, KernelBuilder& builder,
                const std::filesystem::path& to, Progress& progress);

// A plan's fields as plan_text() spells them: numbers, and names of ways.
std::vector<search::Field> fields_of(const Choice& choice);

}  // namespace ac::study
