// What can be built and launched: kernel source, which is an include, perhaps a functor and an
// instantiation, and the launches that compute a region with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "build/compile.h"
#include "ir/step_graph.h"
#include "program/buffer.h"
#include "program/launch.h"

namespace ac {

// One implementation of a region.
struct Generated {
  std::vector<KernelSource> sources;  // each once
  std::vector<Buffer> buffers;        // what Launch::Pointer::buffer counts; each once
  std::vector<Launch> launches;       // one after the other

  int refer(const Buffer& buffer);
};

// Where a value lies in memory: the value is no view. Of a weight in a format, one part.
Buffer buffer_of(const StepGraph& step, NodeId value, std::size_t part = 0);
// What a buffer holds before the first launch, where that is known: a constant, or a rope table for
// so many positions.
std::optional<std::vector<std::byte>> contents_of(const StepGraph& step, const Buffer& buffer,
                                                  std::int64_t positions);

// What the sizes of a launch depend on, besides the step.
struct Setting {
  int multiprocessors = 1;          // of the device that the launch is for
  std::vector<std::int64_t> slots;  // of each state of the step
  // Sequences whose rows have the launch together (generate/each_row.h).
  int rows = 1;
};

// What ends a step over the input `ids` (kernels/advance_plan.h), with a log of so many positions.
Generated generate_advance(const StepGraph& step, NodeId ids, std::int64_t positions);
// Of the kernels that draw a token from logits that a step over `ids` has left, after the greedy
// choice.
Generated generate_draw(const StepGraph& step, NodeId ids, NodeId logits);
// The launch that leaves the allowed ones of the step's logits in `masked`, and chooses the
// largest (kernels/mask_logits_plan.h).
Generated generate_mask(const StepGraph& step, NodeId logits, const Buffer& masked);
// What chooses a token under a mask (Phase::masked): the launch of generate_mask(), those that draw
// from its result, and `advance`. They run behind the step that left the logits, as a step of no
// tokens, as that step has ended.
Generated generate_masked(const StepGraph& step, NodeId ids, NodeId logits, std::int64_t positions);
// The same for a step of several sequences, in which these launches are the only ones that choose
// tokens and end the step. The first and the last launch run for all rows at once.
Generated generate_masked_rows(const StepGraph& step, NodeId ids, NodeId logits,
                               std::int64_t positions);

}  // namespace ac
