#include "search/evolutionary.h"

#include <algorithm>

#include "search/orders.h"

namespace ac::search {
namespace {

constexpr int kTournament = 3;
constexpr double kCrossing = 0.5;  // of the children; the others have one parent
constexpr double kImmigrant = 0.05;
constexpr int kChildren = 40;  // that are known already, before a stranger is taken

}  // namespace

Evolutionary::Evolutionary(const PointSpace& space, std::uint64_t seed, std::size_t population)
    : Explorer(space), random_(seed), population_(population) {}

// The first generation is the best predicted and strangers.
std::optional<int> Evolutionary::propose() {
  if (const int start = space_.start(); !is_tried(start)) return start;
  if (heard_.size() < population_ || alive_.empty() || random_.unit() < kImmigrant)
    return untried(space_, random_, heard_);
  for (int i = 0; i < kChildren; ++i) {
    int child = parent();
    if (random_.unit() < kCrossing) child = space_.cross(child, parent(), random_);
    if (!is_tried(child)) return child;
    const std::vector<int>& mutants = space_.neighbours(child);
    if (mutants.empty()) continue;
    child = mutants[random_.index(mutants.size())];
    if (!is_tried(child)) return child;
  }
  return untried(space_, random_, heard_);
}

void Evolutionary::hear(int point, const PointOutcome& outcome) {
  Explorer::hear(point, outcome);
  if (!outcome.ok()) return;
  const std::pair<double, int> found{outcome.microseconds, point};
  alive_.insert(std::upper_bound(alive_.begin(), alive_.end(), found), found);
  if (alive_.size() > population_) alive_.pop_back();
}

int Evolutionary::parent() {
  std::size_t best = alive_.size();
  for (int i = 0; i < kTournament; ++i) best = std::min(best, random_.index(alive_.size()));
  return alive_[best].second;
}

}  // namespace ac::search
