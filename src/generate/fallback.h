// The implementation that every region has: its ops one by one, each a launch or a few of the
// fallback kernel, right for every op, dtype, layout and size. Every result, also one that stays
// inside the region, has a buffer of its own: row-major, and in no place that overlaps what the
// same node reads.
#pragma once

#include "analyze/region.h"
#include "generate/generate.h"

namespace ac {

// Only sizes that a launch cannot have (not linear in T) are an error (bad_input), naming the op.
// With `argmax`, the token is chosen from the step's logits too, which must be the region's.
Generated fallback(const StepGraph& step, const Region& region, const Setting& setting,
                   bool argmax = false);
// Only the choice of the token, from logits that another kernel has left.
Generated fallback_argmax(const StepGraph& step, NodeId logits, const Setting& setting);

}  // namespace ac
