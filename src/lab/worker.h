// Work for a process of its own: CUDA does not survive a fork, and what a kernel breaks must not be
// the compiler's. `agentcompile worker FILE` begins such a conversation.
#pragma once

#include "admit/judge.h"
#include "base/conversation.h"
#include "lab/jobs.h"
#include "lab/measure.h"

namespace ac {

// Questions of a ServeJob. An outcome answers the first (outcome_from_json()), samples the second:
// none of a contender that calls what a library here has not.
struct JudgeQuestion {
  const Trial& trial;
  const KernelFiles& files;
};
std::string line_of(const JudgeQuestion& question);
struct RaceQuestion {
  const StepGraph& step;
  const std::vector<Contender>& contenders;
  const KernelFiles& files;
  const MeasureOptions& options;
};
std::string line_of(const RaceQuestion& question);

Samples race(Device& device, const RaceQuestion& question);
Conversation::Answer prepare(std::shared_ptr<Device> device, const ServeJob& job);

// On the device that the assignment says.
Conversation::Answer prepare(const Assignment& assignment);

}  // namespace ac
