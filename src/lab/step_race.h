// A search over whole steps, in the process that has the device: which option of each part makes
// the fastest step after so many tokens.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/conversation.h"
#include "device/device.h"

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
};

// A search from the fastest of `starts`, neighbours by neighbours; of each site so many options.
using SitePairs = std::vector<std::pair<std::size_t, std::size_t>>;
StepTimes search_steps(StepTimer& timer, const SitePairs& pairs,
                       const std::vector<std::size_t>& count, const std::vector<Options>& starts,
                       std::chrono::seconds limit);

// For a conversation (base/conversation.h), in the process that times: what is prepared on a
// device, and a question about each context.
Conversation::Answer prepare_steps(std::shared_ptr<Device> device, const Json& job);

}  // namespace ac
