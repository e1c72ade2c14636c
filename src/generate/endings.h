// Launches that choose a token and end a step, where they are parts of longer lists.
#pragma once

#include "generate/generate.h"
#include "ir/dim.h"

namespace ac {

// As kernels name the type of logits; an error (bad_input) if they take none of this type.
const char* logits_type(DType dtype);

// What draws a token, from `logits` of this type: a node of the step, or memory of the launches.
// The greedy choice came before; the step's tokens are counted in `tokens` if they are not in the
// position yet.
void add_draw(const StepGraph& step, Generated& out, NodeId logits, const TensorType& type,
              const Dim& tokens);
void add_draw(const StepGraph& step, Generated& out, const Buffer& logits, const TensorType& type,
              const Dim& tokens);
// What moves the position on by `tokens`.
void add_advance(const StepGraph& step, Generated& out, NodeId ids, std::int64_t positions,
                 const Dim& tokens);

}  // namespace ac
