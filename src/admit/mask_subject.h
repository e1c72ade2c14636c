// The subject of trials that choose under a mask: logits and the bits of allowed tokens become the
// logits that are left and the largest of them.
#pragma once

#include <string>

#include "admit/trial.h"
#include "validate/subject.h"

namespace ac {

validate::Subject mask_subject(const Trial& trial);

// After the launches: that what is left has the bits of the logits, or those of -infinity. The gate
// would take what rounding could make of the ones, and a NaN for the others. What is wrong, or "".
std::string check_masked(const validate::Subject& subject, const validate::Buffers& buffers);

}  // namespace ac
