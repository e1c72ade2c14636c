#include "search/run.h"

namespace ac::search {

std::optional<PointAttempt> Trace::best() const {
  std::optional<PointAttempt> best;
  for (const PointAttempt& attempt : attempts)
    if (attempt.outcome.ok() &&
        (!best || attempt.outcome.microseconds < best->outcome.microseconds))
      best = attempt;
  return best;
}

Trace run_search(Strategy& strategy, const Try& attempt, const Budget& budget, Spent spent) {
  Trace trace{{}, spent};
  while (trace.spent.within(budget)) {
    const std::optional<int> point = strategy.propose();
    if (!point) break;
    const AttemptCost tried = attempt(*point);
    ++trace.spent.attempts;
    trace.spent.seconds += tried.seconds;
    trace.spent.tokens += tried.tokens;
    trace.attempts.push_back({*point, tried.outcome});
    strategy.hear(*point, tried.outcome);
  }
  return trace;
}

}  // namespace ac::search
