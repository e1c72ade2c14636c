// A statistical model of what was measured: a Gaussian process over the traits of points, of the
// logarithm of measured over predicted time. Without data it says what was predicted; with the
// first measurement it knows the scale of the predictions, then how far to believe them and what
// the traits do to them.
#pragma once

#include <vector>

#include "search/strategy.h"

namespace ac::search {

class Surrogate {
 public:
  explicit Surrogate(const PointSpace& space);

  // Failures count as slower than all that was measured.
  void hear(int point, const PointOutcome& outcome);

  struct Belief {
    double mean = 0, deviation = 0;  // of the logarithm of microseconds
  };
  Belief belief(int point);

 private:
  // The covariance of a point with what was observed, whitened; as far as it has been asked for.
  struct Row {
    std::vector<double> whitened;
    double mean = 0, variance = 0;
  };
  double covariance(int a, int b) const;
  double relative_prediction(int point) const;
  Row& row(int point);

  const PointSpace& space_;
  double middle_ = 0, spread_ = 0;           // of the logarithms of what is predicted
  std::vector<int> observed_;                // points
  std::vector<std::vector<double>> factor_;  // rows of the lower Cholesky factor
  std::vector<double> whitened_;             // what was observed
  double worst_ = 0;                         // observed
  double squares_ = 0;                       // of what is whitened, but for the first
  std::unordered_map<int, Row> rows_;
};

// Tries what the model expects to be best, or may be if what it does not know turns out well.
class SurrogateSearch : public Explorer {
 public:
  SurrogateSearch(const PointSpace& space, const Ranking& prior);
  std::optional<int> propose() override;
  void hear(int point, const PointOutcome& outcome) override;
  void recommend(const Ranking& ranking) override;

 private:
  Surrogate model_;
  std::unordered_map<int, double> bonus_;  // of what was advised
  std::vector<int> pool_;                  // what is looked at
  std::unordered_map<int, bool> in_pool_;
  void add(int point);
};

}  // namespace ac::search
