// Evolution: the fittest that were measured are crossed and mutated, one child at a time.
#pragma once

#include "search/strategy.h"

namespace ac::search {

class Evolutionary : public Explorer {
 public:
  Evolutionary(const PointSpace& space, std::uint64_t seed, std::size_t population = 16);
  std::optional<int> propose() override;
  void hear(int point, const PointOutcome& outcome) override;

 private:
  int parent();

  Random random_;
  const std::size_t population_;
  std::vector<std::pair<double, int>> alive_;  // best first
};

}  // namespace ac::search
