// Times steps that are put together from the launches of a trial package, in the process that has
// the device: an engine with random weights and full caches, whatever the step is made of.
#pragma once

#include <memory>
#include <string>

#include "base/conversation.h"
#include "lab/jobs.h"
#include "runtime/engine.h"
#include "runtime/random_values.h"

namespace ac {

class StepBench {
 public:
  // `random`: the built random_source(). Steps follow `context` tokens, until others are said.
  StepBench(Device& device, const std::filesystem::path& package,
            const std::filesystem::path& random, std::int64_t context);

  void follow(std::int64_t context) { context_ = context; }

  using Step = std::vector<Span>;
  // Of one recording: as the engine has, several of a token each, or one of many tokens.
  int steps() const { return tokens_ > 1 ? 1 : 4; }
  std::unique_ptr<Device::Recording> record(const Step& step, int steps);
  // Microseconds of a step, as an average over one recording of so many.
  double sample(Device::Recording& recording, int steps);
  std::chrono::steady_clock::duration waited() const { return engine_.device().waited(); }
  // All of them in turn, after a first run of each that does not count: `rounds` samples of each.
  // `repeats`: steps in a recording; 0: as the engine has.
  std::vector<std::vector<double>> race(const std::vector<Step>& steps, int rounds,
                                        int repeats = 0);

 private:
  RandomValues random_;
  Engine engine_;
  const std::int64_t tokens_;  // of a step
  std::int64_t context_;
};

// Steps, which are answered by so many samples of each.
struct BenchQuestion {
  std::vector<StepBench::Step> steps;
  int rounds = 1;
  int repeats = 0;  // of a step in one recording; 0: as the engine has
};
std::string line_of(const BenchQuestion& question);

Conversation::Answer prepare(std::shared_ptr<Device> device, const BenchJob& job);

}  // namespace ac
