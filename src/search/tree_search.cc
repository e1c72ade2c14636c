#include "search/tree_search.h"

#include <algorithm>
#include <cmath>

#include "search/orders.h"

namespace ac::search {
namespace {

constexpr double kExploration = 0.6;      // of PUCT
constexpr double kSharpness = 10;         // of the prior: in logarithms of time, one e-fold is 1/10
constexpr double kBranchCuriosity = 0.7;  // deviations of the surrogate
constexpr double kBestShare = 0.8;  // of a subtree's value that its best counts; its mean the rest
constexpr double kAdvisedBranch = 8;  // how much more the first that is advised deserves
constexpr double kScale = 0.5;        // of the spread of logarithms: so much slower is worth 1/e
// Before there is a spread to go by. Too small, all that is hoped for is worth the most there is.
constexpr double kLeastScale = 0.05;
constexpr double kMostValue = 3;       // of what is only hoped for
constexpr double kFailedBranch = 0.7;  // a failure counts as so much slower than all else

}  // namespace

TreeSearch::TreeSearch(const PointSpace& space, const Ranking& prior)
    : Explorer(space), model_(space) {
  recommend(prior);
}

void TreeSearch::recommend(const Ranking& ranking) {
  for (std::size_t rank = 0; rank < ranking.order.size(); ++rank)
    advised_[ranking.order[rank]] = ranking.weight(rank);
}

std::optional<int> TreeSearch::changes_now() const {
  if (under_ < 0) return std::nullopt;
  return nodes_[static_cast<std::size_t>(under_)].point;
}

double TreeSearch::weight(int point) const {
  const auto found = advised_.find(point);
  return found == advised_.end() ? 1 : 1 + kAdvisedBranch * found->second;
}

// 1 for the best that was measured, less for what is slower, by the spread of what was measured.
double TreeSearch::value(double log_microseconds) const {
  const double count = std::max(measured_, 1.0), mean = sum_ / count;
  const double spread = std::sqrt(std::max(squares_ / count - mean * mean, 0.0));
  const double scale = std::max(kScale * spread, kLeastScale);
  return std::min(std::exp((low_ - log_microseconds) / scale), kMostValue);
}

void TreeSearch::list_actions(Node& node) {
  node.has_actions = true;
  node.actions = space_.neighbours(node.point);
  // What was advised can be reached from the root in one step.
  if (node.parent < 0)
    for (const auto& [point, weight] : advised_) node.actions.push_back(point);
  std::sort(node.actions.begin(), node.actions.end());
  node.actions.erase(std::unique(node.actions.begin(), node.actions.end()), node.actions.end());
  std::erase_if(node.actions, [&](int point) { return is_tried(point); });
}

TreeSearch::Pick TreeSearch::pick(Node& node) {
  if (!node.has_actions) list_actions(node);
  std::erase_if(node.actions, [&](int point) { return is_tried(point); });
  struct Hope {
    int action;
    double log_microseconds, share;
  };
  std::vector<Hope> hopes;
  double lowest = 0;
  for (const int action : node.actions) {
    const Surrogate::Belief belief = model_.belief(action);
    hopes.push_back({action, belief.mean - kBranchCuriosity * belief.deviation, 0});
    lowest = hopes.size() == 1 ? belief.mean : std::min(lowest, belief.mean);
  }
  double sum = 0;
  for (Hope& hope : hopes) {
    const double mean = model_.belief(hope.action).mean;
    hope.share = std::exp(-kSharpness * (mean - lowest)) * weight(hope.action);
    sum += hope.share;
  }
  for (Hope& hope : hopes) hope.share /= sum;

  Pick best;
  double highest = 0;
  const double effort = kExploration * std::sqrt(static_cast<double>(node.visits));
  const auto offer = [&](double score, Pick pick) {
    if (best.action || best.child ? score > highest : true) best = pick, highest = score;
  };
  for (const Hope& hope : hopes)
    offer(value(hope.log_microseconds) + effort * hope.share, {hope.action, {}, hope.share});
  for (const int index : node.children) {
    const Node& child = nodes_[static_cast<std::size_t>(index)];
    if (child.exhausted || !child.ok) continue;
    const double mean = child.sum / child.visits;
    const double worth = kBestShare * value(child.best) + (1 - kBestShare) * value(mean);
    offer(worth + effort * child.share / (1 + child.visits), {{}, index, 0});
  }
  return best;
}

// Along the best children to a transformation that was not tried.
std::optional<int> TreeSearch::descend() {
  while (!nodes_[0].exhausted) {
    int at = 0;
    for (;;) {
      Node& node = nodes_[static_cast<std::size_t>(at)];
      const Pick picked = pick(node);
      if (picked.action) {
        under_ = at, share_ = picked.share;
        return picked.action;
      }
      if (!picked.child) {
        node.exhausted = true;
        break;
      }
      at = *picked.child;
    }
  }
  return std::nullopt;
}

std::optional<int> TreeSearch::propose() {
  under_ = nodes_.empty() ? -1 : 0, share_ = 0;
  if (nodes_.empty()) return space_.start();
  if (const std::optional<int> found = descend()) return found;
  // What no transformation leads to.
  return untried(space_, random_, heard_);
}

void TreeSearch::hear(int point, const PointOutcome& outcome) {
  Explorer::hear(point, outcome);
  model_.hear(point, outcome);
  double logarithm = high_ + kFailedBranch;
  if (outcome.ok()) {
    logarithm = std::log(std::max(outcome.microseconds, 1e-3));
    low_ = measured_ > 0 ? std::min(low_, logarithm) : logarithm;
    high_ = measured_ > 0 ? std::max(high_, logarithm) : logarithm;
    sum_ += logarithm, squares_ += logarithm * logarithm;
    ++measured_;
  }
  if (!node_of_.emplace(point, static_cast<int>(nodes_.size())).second) return;
  const bool is_root = nodes_.empty();
  const int parent = is_root ? -1 : std::max(under_, 0);
  const int index = static_cast<int>(nodes_.size());
  Node& node = nodes_.emplace_back();
  node.point = point, node.parent = parent;
  node.best = logarithm, node.share = share_;
  node.ok = outcome.ok();
  if (parent >= 0) {
    nodes_[static_cast<std::size_t>(parent)].children.push_back(index);
    nodes_[0].exhausted = false;
  }
  for (int at = index; at >= 0; at = nodes_[static_cast<std::size_t>(at)].parent) {
    Node& above = nodes_[static_cast<std::size_t>(at)];
    ++above.visits;
    above.sum += logarithm;
    above.best = std::min(above.best, logarithm);
  }
}

}  // namespace ac::search
