#include "program/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ac {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Below the largest, in units of the temperature; empty if there is no largest.
std::vector<double> distances_of(const std::vector<double>& logits,
                                 const kernels::DrawSettings& settings) {
  double largest = kNever;
  for (const double logit : logits) {
    if (std::isnan(logit)) return {};
    largest = std::max(largest, logit);
  }
  if (!std::isfinite(largest)) return {};
  std::vector<double> distances;
  for (const double logit : logits)
    distances.push_back((largest - logit) / static_cast<double>(settings.temperature));
  return distances;
}

std::vector<bool> kept(const std::vector<double>& distances, const kernels::DrawSettings& settings,
                       double slack) {
  std::vector<double> sorted = distances;
  std::sort(sorted.begin(), sorted.end());
  double farthest = static_cast<double>(kernels::draw_range);
  if (settings.top_k > 0 && static_cast<std::size_t>(settings.top_k) <= sorted.size())
    farthest = std::min(farthest, sorted[static_cast<std::size_t>(settings.top_k) - 1] + slack);
  if (settings.top_p < 1) {
    const auto weight = [](double sum, double distance) { return sum + std::exp(-distance); };
    const auto end = std::upper_bound(sorted.begin(), sorted.end(), farthest);
    const double total = std::accumulate(sorted.begin(), end, 0.0, weight);
    const double wanted = (static_cast<double>(settings.top_p) + slack) * total;
    double before = 0;  // of the likelier ones
    auto last = sorted.begin();
    while (last + 1 < end && weight(before, *last) < wanted) before = weight(before, *last++);
    if (sorted.begin() < end) farthest = std::min(farthest, *last + slack);
  }
  if (settings.min_p > 0)
    farthest = std::min(farthest, slack - std::log(static_cast<double>(settings.min_p)));
  std::vector<bool> kept;
  for (const double distance : distances) kept.push_back(distance <= std::max(farthest, 0.0));
  return kept;
}

std::vector<double> scores_of(const std::vector<double>& distances,
                              const kernels::DrawSettings& settings, std::int64_t position) {
  const unsigned long long stream = kernels::draw_stream(settings.seed, static_cast<int>(position));
  std::vector<double> scores;
  for (std::size_t i = 0; i < distances.size(); ++i) {
    const unsigned long long bits = kernels::draw_bits(stream, static_cast<int>(i));
    const double uniform = std::ldexp(static_cast<double>(bits), -kernels::draw_random_bits);
    scores.push_back(-distances[i] - std::log(-std::log1p(-uniform)));
  }
  return scores;
}

}  // namespace

std::vector<bool> tokens_kept(const std::vector<double>& logits,
                              const kernels::DrawSettings& settings, double slack) {
  const std::vector<double> distances = distances_of(logits, settings);
  if (distances.empty()) return std::vector<bool>(logits.size());
  return kept(distances, settings, slack);
}

std::int64_t draw_token(const std::vector<double>& logits, const kernels::DrawSettings& settings,
                        std::int64_t position) {
  const std::vector<double> distances = distances_of(logits, settings);
  if (distances.empty()) return -1;
  const std::vector<bool> candidates = kept(distances, settings, 0);
  std::vector<double> scores = scores_of(distances, settings, position);
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (!candidates[i]) scores[i] = kNever;
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

bool may_draw(const std::vector<double>& logits, const kernels::DrawSettings& settings,
              std::int64_t position, std::int64_t token, double slack) {
  const std::vector<double> distances = distances_of(logits, settings);
  if (distances.empty()) return token == -1;
  if (token < 0 || token >= static_cast<std::int64_t>(logits.size())) return false;
  const auto at = static_cast<std::size_t>(token);
  if (!kept(distances, settings, slack)[at]) return false;
  const std::vector<double> scores = scores_of(distances, settings, position);
  const std::vector<bool> sure = kept(distances, settings, -slack);
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (sure[i] && scores[i] > scores[at] + slack) return false;
  return true;
}

}  // namespace ac
