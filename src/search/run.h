// Runs a strategy against whatever tries points, within a budget.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "search/strategy.h"

namespace ac::search {

// Whatever is used up first ends a search. What a search cost before it began (tokens of advice,
// seconds of waiting for it) counts.
struct Budget {
  std::size_t attempts = std::numeric_limits<std::size_t>::max();  // failures included
  double seconds = std::numeric_limits<double>::infinity();
  std::uint64_t tokens = std::numeric_limits<std::uint64_t>::max();
};

struct Spent {
  std::size_t attempts = 0;
  double seconds = 0;
  std::uint64_t tokens = 0;
  bool within(const Budget& budget) const {
    return attempts < budget.attempts && seconds < budget.seconds && tokens <= budget.tokens;
  }
};

struct PointAttempt {
  int point = 0;
  PointOutcome outcome;
};

struct Trace {
  std::vector<PointAttempt> attempts;
  Spent spent;
  std::optional<PointAttempt> best() const;
};

// What became of a point, and what trying it cost besides one attempt.
struct AttemptCost {
  PointOutcome outcome;
  double seconds = 0;
  std::uint64_t tokens = 0;
};
using Try = std::function<AttemptCost(int point)>;

Trace run_search(Strategy& strategy, const Try& attempt, const Budget& budget, Spent spent = {});

}  // namespace ac::search
