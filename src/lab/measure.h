// Latency of several implementations of one region on a device, at the region's real sizes: random
// data, weights and states rotated through more memory than the second-level cache holds, rounds of
// all in turn. What drifts (clocks, temperature) drifts for all.
#pragma once

#include <filesystem>
#include <map>

#include "device/device.h"
#include "generate/generate.h"
#include "program/program.h"

namespace ac {

struct Contender {
  std::string name;
  Generated made;  // over the nodes of the step
};

struct MeasureOptions {
  std::int64_t tokens = 1, position = 0;
  // More than one: of steps of one token, run once for each of so many rows, with other copies of
  // what they read.
  std::int64_t rows = 1;
  std::vector<StateSpec> states;  // of the step
  int rounds = 7;
  double seconds = 0.02;   // of one round of one contender, about
  int repetitions = 2000;  // in one round, at most: a GPU's graph of them takes time to make
  // What runs for more seconds than this the first time is not run again; 0: whatever does.
  double patience = 0;
};

struct Latency {
  double microseconds = 0;      // the median; infinite: it calls what a library here has not
  std::vector<double> samples;  // of each round
};

double median(std::vector<double> values);

// In the order of the contenders.
std::vector<Latency> measure(Device& device, const StepGraph& step,
                             const std::vector<Contender>& contenders,
                             const std::map<std::string, std::filesystem::path>& files,
                             const MeasureOptions& options);

}  // namespace ac
