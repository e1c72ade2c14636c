// How much is tried, and after how many tokens it is timed.
#pragma once

#include "compile/compile.h"
#include "select/in_context.h"
#include "select/select.h"

namespace ac {

SelectOptions select_options(const CompileOptions& options, bool quick, const PhaseSpec& phase,
                             std::int64_t max_context);
// No contexts: whole steps are not timed.
InContextOptions in_context_options(const CompileOptions& options, bool quick,
                                    const PhaseSpec& phase);

}  // namespace ac
