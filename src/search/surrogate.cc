#include "search/surrogate.h"

#include <algorithm>
#include <cmath>

namespace ac::search {
namespace {

// In units of the process's own variance.
constexpr double kBias = 10;     // of all points together
constexpr double kTrend = 2;     // of how far the predictions are to be believed
constexpr double kNoise = 0.02;  // of one measurement
// The spread of residuals that is expected before there are any, and how firmly.
constexpr double kSpread = 0.15;
constexpr double kFirmness = 3;
constexpr double kFailure = 0.7;  // a failure is so much slower than all else, in logarithms
constexpr int kScaleDraws = 200;  // that scales are taken from
constexpr std::uint64_t kListed = 20'000;

constexpr double kCuriosity = 0.7;  // deviations that what is not known may turn out better
constexpr double kAdvised = 0.8;    // of the first that was advised: so much better, in logarithms

double log_predicted(const PointSpace& space, int point) {
  return std::log(std::max(space.predicted(point), 1e-3));
}

}  // namespace

Surrogate::Surrogate(const PointSpace& space) : space_(space) {
  Random random(1);
  double predictions = 0, squares = 0;
  for (int i = 0; i < kScaleDraws; ++i) {
    const int a = space.draw(random);
    const double prediction = log_predicted(space, a);
    predictions += prediction, squares += prediction * prediction;
  }
  middle_ = predictions / kScaleDraws;
  spread_ = std::sqrt(std::max(squares / kScaleDraws - middle_ * middle_, 0.0));
}

double Surrogate::relative_prediction(int point) const {
  return spread_ > 1e-6 ? (log_predicted(space_, point) - middle_) / spread_ : 0;
}

double Surrogate::covariance(int a, int b) const {
  const double trend = relative_prediction(a) * relative_prediction(b);
  return kBias + kTrend * trend + space_.likeness(a, b);
}

Surrogate::Row& Surrogate::row(int point) {
  const auto [at, is_new] = rows_.try_emplace(point);
  Row& row = at->second;
  if (is_new) row.variance = covariance(point, point);
  for (std::size_t m = row.whitened.size(); m < observed_.size(); ++m) {
    double value = covariance(point, observed_[m]);
    for (std::size_t i = 0; i < m; ++i) value -= factor_[m][i] * row.whitened[i];
    value /= factor_[m][m];
    row.whitened.push_back(value);
    row.mean += value * whitened_[m];
    row.variance -= value * value;
  }
  return row;
}

void Surrogate::hear(int point, const PointOutcome& outcome) {
  double residual;
  if (outcome.ok()) {
    residual = std::log(std::max(outcome.microseconds, 1e-3)) - log_predicted(space_, point);
    worst_ = observed_.empty() ? residual : std::max(worst_, residual);
  } else {
    residual = worst_ + kFailure;
  }
  const Row& known = row(point);
  std::vector<double> factor = known.whitened;
  const double pivot = std::sqrt(std::max(known.variance, 0.0) + kNoise);
  factor.push_back(pivot);
  const double whitened = (residual - known.mean) / pivot;
  if (!observed_.empty()) squares_ += whitened * whitened;
  observed_.push_back(point);
  factor_.push_back(std::move(factor));
  whitened_.push_back(whitened);
}

Surrogate::Belief Surrogate::belief(int point) {
  const Row& known = row(point);
  const double more = observed_.empty() ? 0 : static_cast<double>(observed_.size() - 1);
  const double scale = std::sqrt((kSpread * kSpread * kFirmness + squares_) / (kFirmness + more));
  // Before the first measurement all predictions are uncertain alike.
  const double variance = std::min(std::max(known.variance, 0.0), 1.0);
  return {log_predicted(space_, point) + known.mean, scale * std::sqrt(variance)};
}

SurrogateSearch::SurrogateSearch(const PointSpace& space, const Ranking& prior)
    : Explorer(space), model_(space) {
  if (space.size() <= kListed)
    for (std::uint64_t i = 0; i < space.size(); ++i) add(space.at(i));
  else
    add(space.start());
  recommend(prior);
}

void SurrogateSearch::recommend(const Ranking& ranking) {
  for (std::size_t rank = 0; rank < ranking.order.size(); ++rank) {
    bonus_[ranking.order[rank]] = kAdvised * ranking.weight(rank);
    add(ranking.order[rank]);
  }
}

void SurrogateSearch::add(int point) {
  if (in_pool_.emplace(point, true).second) pool_.push_back(point);
}

std::optional<int> SurrogateSearch::propose() {
  std::optional<int> best;
  double lowest = 0;
  for (const int point : pool_) {
    if (is_tried(point)) continue;
    const Surrogate::Belief belief = model_.belief(point);
    const auto bonus = bonus_.find(point);
    const double hope =
        belief.mean - kCuriosity * belief.deviation - (bonus == bonus_.end() ? 0 : bonus->second);
    if (!best || hope < lowest) best = point, lowest = hope;
  }
  return best;
}

void SurrogateSearch::hear(int point, const PointOutcome& outcome) {
  Explorer::hear(point, outcome);
  model_.hear(point, outcome);
  if (space_.size() > kListed && (outcome.ok() || heard_.size() == 1))
    for (const int next : space_.neighbours(point)) add(next);
}

}  // namespace ac::search
