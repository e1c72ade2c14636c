// Strategies that need no model of what they measure: all, by prediction, at random, and descent.
#pragma once

#include "search/strategy.h"

namespace ac::search {

class Exhaustive : public Explorer {
 public:
  using Explorer::Explorer;
  std::optional<int> propose() override;

 private:
  std::uint64_t next_ = 0;
};

// Of a listed space.
class ByPrediction : public Explorer {
 public:
  explicit ByPrediction(const PointSpace& space);
  std::optional<int> propose() override;

 private:
  std::vector<int> order_;
  std::size_t next_ = 0;
};

class RandomOrder : public Explorer {
 public:
  RandomOrder(const PointSpace& space, std::uint64_t seed);
  std::optional<int> propose() override;

 private:
  Random random_;
  std::vector<int> order_;  // of a listed space
  std::size_t next_ = 0;
};

// From the best predicted point, one transformation at a time, the best predicted first; from what
// is better it goes on. When nothing is left around the best, the second best is looked at.
class Descent : public Explorer {
 public:
  using Explorer::Explorer;
  std::optional<int> propose() override;
  void hear(int point, const PointOutcome& outcome) override;

 private:
  std::vector<std::pair<double, int>> open_;  // measured, with neighbours left; best first
};

// A point that was not tried, or nothing if none is found.
std::optional<int> untried(const PointSpace& space, Random& random,
                           const std::unordered_map<int, PointOutcome>& tried);

}  // namespace ac::search
