// Generates with the reference executor, for `run --reference`.
#pragma once

#include <memory>

#include "answer/generator.h"
#include "capture/model.h"
#include "ir/step_graph.h"

namespace ac {

std::unique_ptr<Generator> reference_generator(const Model& model, const StepGraph& step,
                                               int threads);

}  // namespace ac
