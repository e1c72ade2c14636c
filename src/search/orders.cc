#include "search/orders.h"

#include <algorithm>

namespace ac::search {
namespace {

// Draws after which a space is taken to be used up.
constexpr int kUntriedDraws = 2000;

}  // namespace

std::optional<int> untried(const PointSpace& space, Random& random,
                           const std::unordered_map<int, PointOutcome>& tried) {
  for (int draw = 0; draw < kUntriedDraws; ++draw)
    if (const int point = space.draw(random); tried.count(point) == 0) return point;
  if (space.is_listed())
    for (std::uint64_t i = 0; i < space.size(); ++i)
      if (const int point = space.at(i); tried.count(point) == 0) return point;
  return std::nullopt;
}

std::optional<int> Exhaustive::propose() {
  while (next_ < space_.size())
    if (const int point = space_.at(next_++); !is_tried(point)) return point;
  return std::nullopt;
}

ByPrediction::ByPrediction(const PointSpace& space) : Explorer(space) {
  for (std::uint64_t i = 0; i < space.size(); ++i) order_.push_back(space.at(i));
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int a, int b) { return space.predicted(a) < space.predicted(b); });
}

std::optional<int> ByPrediction::propose() {
  while (next_ < order_.size())
    if (const int point = order_[next_++]; !is_tried(point)) return point;
  return std::nullopt;
}

RandomOrder::RandomOrder(const PointSpace& space, std::uint64_t seed)
    : Explorer(space), random_(seed) {
  if (!space.is_listed()) return;
  for (std::uint64_t i = 0; i < space.size(); ++i) order_.push_back(space.at(i));
  random_.shuffle(order_);
}

std::optional<int> RandomOrder::propose() {
  if (!space_.is_listed()) return untried(space_, random_, heard_);
  while (next_ < order_.size())
    if (const int point = order_[next_++]; !is_tried(point)) return point;
  return std::nullopt;
}

std::optional<int> Descent::propose() {
  if (const int start = space_.start(); !is_tried(start)) return start;
  while (!open_.empty()) {
    std::optional<int> best;
    for (const int next : space_.neighbours(open_.front().second))
      if (!is_tried(next) && (!best || space_.predicted(next) < space_.predicted(*best)))
        best = next;
    if (best) return best;
    open_.erase(open_.begin());
  }
  return std::nullopt;
}

void Descent::hear(int point, const PointOutcome& outcome) {
  Explorer::hear(point, outcome);
  // A failed start is where the search begins all the same.
  const std::pair<double, int> found{outcome.ok() ? outcome.microseconds : 1e30, point};
  if (outcome.ok() || open_.empty())
    open_.insert(std::upper_bound(open_.begin(), open_.end(), found), found);
}

}  // namespace ac::search
