// Which regions of a step an advisor is asked about, and what: for the compiler, and for studies of
// advice, which ask the same and compile nothing.
#pragma once

#include <string>
#include <vector>

#include "advise/question.h"

namespace ac {

// Regions of mixed kinds, products with complex epilogues, reductions with arithmetic around them,
// and whatever takes `share` of the step's predicted time or more; of the cut that is predicted to
// be best or, `of_all_cuts`, of any that was planned. The questions point into the regions.
std::vector<Question> questions_about(const std::string& phase, const Regions& regions,
                                      const Plans& plans, double share, bool of_all_cuts = false);

}  // namespace ac
