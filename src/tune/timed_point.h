// A candidate or a whole step that was built, admitted and timed, or why it was not.
#pragma once

#include <string>
#include <vector>

#include "search/strategy.h"

namespace ac::tune {

struct TimedPoint {
  search::Point point;
  search::Verdict verdict = search::Verdict::measured;
  std::string why;              // if it was not measured
  bool was_admitted = true;     // false: its admission was skipped
  std::vector<double> samples;  // microseconds

  search::PointOutcome outcome() const;  // the median of the samples, or why there are none
};

}  // namespace ac::tune
