// What plan.json keeps of the stages before selection: enough for `inspect` to show them of a
// package alone, and small enough to travel with it.
#pragma once

#include "base/json.h"
#include "compile/compile.h"

namespace ac {

// One entry for each signature of analyse(), with its count and the work of one region.
Json region_table(const CompiledPhase& phase);

// One entry for each space: what was enumerated, why the rest is illegal, which families refused,
// and the ranked candidates with their predicted microseconds.
Json space_table(const CompiledPhase& phase);

// The neighbourhoods that could be fused, equal ones once, and what each way would cost.
Json fusion_table(const CompiledPhase& phase);

}  // namespace ac
