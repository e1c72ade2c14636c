// A plot of curves with bands, as SVG that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "study/statistics.h"

namespace ac::study {

struct Line {
  std::string name;
  std::vector<Interval> values;  // after 1, 2, 3 ... attempts
};

// Attempts on a logarithmic axis, from 1; values are at most 1.
std::string plot(const std::string& title, const std::string& y_label,
                 const std::vector<Line>& lines);

}  // namespace ac::study
