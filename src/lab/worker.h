// Work on a GPU, for a process of its own: CUDA does not survive a fork, and what a kernel breaks
// must not be the compiler's. `agentcompile worker FILE` begins such a conversation.
#pragma once

#include "admit/judge.h"
#include "base/conversation.h"
#include "lab/measure.h"

namespace ac {

Json judge_job(const Trial& trial, const KernelFiles& files);
Json race_job(const StepGraph& step, const std::vector<Contender>& contenders,
              const KernelFiles& files, const MeasureOptions& options);

// The samples of each contender: what a race answers. None of one that a library here has not.
Json samples_json(const std::vector<Latency>& latencies);

// What a judgement or a race says as JSON: an outcome or samples.
std::string run_job(const Json& job);

// To do such jobs one after the other, each of them a question, on one device.
Json jobs_job();

// A job that is asked one question after the other: that, or what others prepare (step_bench.h,
// in_context.h).
bool is_conversation(const Json& job);
Conversation::Answer prepare_job(const Json& job);

}  // namespace ac
