// Work on a GPU, for a process of its own: CUDA does not survive a fork, and what a kernel breaks
// must not be the compiler's. `agentcompile worker FILE` runs one such job.
#pragma once

#include "admit/judge.h"
#include "base/conversation.h"
#include "measure/measure.h"

namespace ac {

Json judge_job(const Trial& trial, const KernelFiles& files);
Json race_job(const StepGraph& step, const std::vector<Contender>& contenders,
              const KernelFiles& files, const MeasureOptions& options);

// The samples of each contender: what a race answers. None of one that a library here has not.
Json samples_json(const std::vector<Latency>& latencies);

// What the job says as JSON: an outcome, samples, or what in_context.h says of its own.
std::string run_job(const Json& job);

// A job that is asked one question after the other.
bool is_conversation(const Json& job);
Conversation::Answer prepare_job(const Json& job);

}  // namespace ac
