// What a schedule takes, from those that were timed: a term for each choice of a site, and one for
// the choices of each two sites that follow each other, shrunk to nothing where few schedules have
// them. Fitted to half of the points; what it is worth, the other half says.
#pragma once

#include <array>

#include "study/timed_table.h"

namespace ac::study {

struct FitErrors {
  std::size_t fitted = 0, held_out = 0;  // points
  double median = 0, most = 0;           // of |error| / time, of those held out; 95th percentile
  double median_of_fastest = 0;          // of the fastest 5 % of them
  double rank_correlation = 0;
  // 95th percentile of how far the reference's timings are from their median.
  double noise = 0;
  std::size_t references = 0;
};

class FittedStep {
 public:
  // A table with sites. Too few points or timings of the reference are an error (bad_input).
  explicit FittedStep(const TimedTable& table);

  double microseconds(const std::vector<int>& schedule) const;
  const FitErrors& errors() const { return errors_; }
  // Why it may not answer in a replay; empty if it may: its median error is below the noise of a
  // timing, of all that was held out and of the fastest.
  std::string why_not() const;

 private:
  std::vector<int> terms(const std::vector<int>& schedule) const;

  std::vector<std::size_t> first_;  // term of each site's first choice
  std::map<std::array<int, 4>, int> pairs_;
  std::vector<double> weights_;
  FitErrors errors_;
};

}  // namespace ac::study
