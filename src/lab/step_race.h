// A search over whole steps, in the process that has the device: which option of each part makes
// the fastest step after so many tokens.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/conversation.h"
#include "device/device.h"
#include "lab/jobs.h"

namespace ac {

// Of the time before, for a choice to be another one.
constexpr double kWorthwhile = 0.998;

using Options = std::vector<std::size_t>;  // one of each site

// What is fastest after so many tokens, of the steps that a search timed. It begins with the
// fastest of `starts`, of which the first one is what would be taken without it.
struct StepTimes {
  Options options;
  double first_us = 0, us = 0;
  int timed = 0;
};
// Microseconds of steps with these options: as exactly as a choice between them needs, or roughly.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  virtual std::vector<double> run(const std::vector<Options>& choices) = 0;
  virtual std::vector<double> glance(const std::vector<Options>& choices, int rounds) = 0;
  // For others who use the device: of no limit's time.
  virtual std::chrono::steady_clock::duration waited() const = 0;
};

// A search from the fastest of `starts`, neighbours by neighbours; of each site so many options.
using SitePairs = std::vector<std::pair<std::size_t, std::size_t>>;
StepTimes search_steps(StepTimer& timer, const SitePairs& pairs,
                       const std::vector<std::size_t>& count, const std::vector<Options>& starts,
                       std::chrono::seconds limit);

// After so many tokens, from these steps on. What does not depend on the tokens is timed again in
// the first context alone.
struct StepsQuestion {
  std::int64_t context = 0;
  std::vector<Options> starts;
  bool is_first = true;
  std::chrono::seconds limit{0};
};
std::string line_of(const StepsQuestion& question);
StepTimes step_times_of(const std::string& line);

Conversation::Answer prepare(std::shared_ptr<Device> device, const StepsJob& job);

}  // namespace ac
