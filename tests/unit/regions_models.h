// Steps for tests of the analyzer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/step_graph.h"

namespace ac::test {

// Over T = 1 tokens, or any number.
StepGraph published(const std::string& config, bool decode);
StepGraph one_layer_qwen3();
StepGraph gemma_like(std::int64_t layers, Dim tokens);
StepGraph gpt2_like(std::int64_t layers, Dim tokens);

// The same step with its nodes in another order that can run.
StepGraph shuffled(const StepGraph& step, unsigned seed);

}  // namespace ac::test
