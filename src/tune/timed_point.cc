#include "tune/timed_point.h"

#include "lab/measure.h"

namespace ac::tune {

search::PointOutcome TimedPoint::outcome() const {
  if (verdict != search::Verdict::measured) return {verdict, 0, why};
  return {verdict, median(samples)};
}

}  // namespace ac::tune
