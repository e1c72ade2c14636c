#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "search/random.h"

namespace ac::study {
namespace {

constexpr std::size_t kAllSigns = 16;
constexpr std::size_t kRandomSigns = 20'000;

std::size_t length_of(const Curves& curves) {
  AC_ASSERT(!curves.empty() && !curves[0].empty());
  return curves[0][0].size();
}

void add(std::vector<double>& sum, const Curve& curve, double weight) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * curve[i];
}

// One space's repetitions, drawn again: replies, and of each as many repetitions as it had.
void add_drawn(std::vector<double>& sum, const std::vector<Curve>& repetitions, std::size_t draws,
               double weight, search::Random& random) {
  const double each = weight / static_cast<double>(repetitions.size());
  if (repetitions.size() == 1) return add(sum, repetitions[0], each);
  const std::size_t of_each = repetitions.size() / draws;
  for (std::size_t d = 0; d < draws; ++d) {
    const std::size_t draw = draws == 1 ? 0 : random.index(draws);
    for (std::size_t i = 0; i < of_each; ++i)
      add(sum, repetitions[draw + draws * (of_each == 1 ? 0 : random.index(of_each))], each);
  }
}

std::vector<double> mean_of(const Curves& curves) {
  std::vector<double> mean(length_of(curves));
  for (const std::vector<Curve>& repetitions : curves)
    for (const Curve& curve : repetitions)
      add(mean, curve, 1.0 / static_cast<double>(curves.size() * repetitions.size()));
  return mean;
}

// The spaces of each kind.
std::vector<std::vector<std::size_t>> by_kind(const Kinds& kinds, std::size_t spaces) {
  AC_ASSERT(kinds.empty() || kinds.size() == spaces);
  std::map<std::size_t, std::vector<std::size_t>> found;
  for (std::size_t s = 0; s < spaces; ++s) found[kinds.empty() ? s : kinds[s]].push_back(s);
  std::vector<std::vector<std::size_t>> lists;
  for (auto& [kind, list] : found) lists.push_back(std::move(list));
  return lists;
}

// `b` may be empty.
std::vector<Interval> intervals(const Curves& a, const Draws& draws_of_a, const Curves& b,
                                const Draws& draws_of_b, const Kinds& kinds, std::size_t resamples,
                                std::uint64_t seed) {
  const auto draws = [](const Draws& draws, const Curves& curves, std::size_t space) {
    if (draws.empty()) return std::size_t{1};
    AC_ASSERT(draws.size() == curves.size() && draws[space] > 0 &&
              curves[space].size() % draws[space] == 0);
    return draws[space];
  };
  const std::size_t length = length_of(a);
  search::Random random(seed);
  std::vector<std::vector<double>> drawn(length);  // by attempts
  const std::vector<std::vector<std::size_t>> lists = by_kind(kinds, a.size());
  for (std::size_t r = 0; r < resamples; ++r) {
    std::vector<double> sum(length);
    std::size_t spaces = 0;  // kinds have different numbers of them
    for (std::size_t k = 0; k < lists.size(); ++k) {
      const std::vector<std::size_t>& list = lists[random.index(lists.size())];
      for (std::size_t s = 0; s < list.size(); ++s, ++spaces) {
        const std::size_t space = list[random.index(list.size())];
        add_drawn(sum, a[space], draws(draws_of_a, a, space), 1, random);
        if (!b.empty()) add_drawn(sum, b[space], draws(draws_of_b, b, space), -1, random);
      }
    }
    for (std::size_t i = 0; i < length; ++i)
      drawn[i].push_back(sum[i] / static_cast<double>(spaces));
  }
  std::vector<double> mean = mean_of(a);
  if (!b.empty()) {
    const std::vector<double> other = mean_of(b);
    for (std::size_t i = 0; i < length; ++i) mean[i] -= other[i];
  }
  std::vector<Interval> found(length);
  for (std::size_t i = 0; i < length; ++i) {
    found[i].mean = found[i].low = found[i].high = mean[i];
    if (drawn[i].empty()) continue;
    std::sort(drawn[i].begin(), drawn[i].end());
    const auto last = static_cast<double>(drawn[i].size() - 1);
    found[i].low = drawn[i][static_cast<std::size_t>(0.025 * last + 0.5)];
    found[i].high = drawn[i][static_cast<std::size_t>(0.975 * last + 0.5)];
  }
  return found;
}

std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    const double shared = static_cast<double>(i + end - 1) / 2;
    for (; i < end; ++i) ranks[order[i]] = shared;
  }
  return ranks;
}

}  // namespace

std::vector<Interval> bootstrap(const Curves& curves, std::size_t resamples, std::uint64_t seed,
                                const Draws& draws, const Kinds& kinds) {
  return intervals(curves, draws, {}, {}, kinds, resamples, seed);
}

std::vector<Interval> bootstrap_difference(const Curves& a, const Curves& b, std::size_t resamples,
                                           std::uint64_t seed, const Draws& draws_of_a,
                                           const Draws& draws_of_b, const Kinds& kinds) {
  AC_ASSERT(a.size() == b.size() && length_of(a) == length_of(b));
  return intervals(a, draws_of_a, b, draws_of_b, kinds, resamples, seed);
}

std::vector<double> sums_by_kind(std::span<const double> values, const Kinds& kinds) {
  std::vector<double> sums;
  for (const std::vector<std::size_t>& list : by_kind(kinds, values.size())) {
    double sum = 0;
    for (const std::size_t s : list) sum += values[s];
    sums.push_back(sum);
  }
  return sums;
}

double sign_flip_p(std::span<const double> differences, std::uint64_t seed) {
  const std::size_t count = differences.size();
  if (count == 0) return 1;
  const double seen = std::abs(std::accumulate(differences.begin(), differences.end(), 0.0));
  const double least = seen - 1e-12 * (1 + seen);  // that counts as this far
  const bool all = count <= kAllSigns;
  const std::size_t tries = all ? std::size_t{1} << count : kRandomSigns;
  search::Random random(seed);
  std::size_t far = 0;
  for (std::size_t t = 0; t < tries; ++t) {
    double sum = 0;
    std::uint64_t signs = t;
    for (std::size_t i = 0; i < count; ++i) {
      if (!all && i % 64 == 0) signs = random.bits();
      sum += (signs >> (i % 64) & 1) != 0 ? -differences[i] : differences[i];
    }
    far += std::abs(sum) >= least;
  }
  // What was seen is one of the random ones.
  return all ? static_cast<double>(far) / static_cast<double>(tries)
             : static_cast<double>(far + 1) / static_cast<double>(tries + 1);
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return p[i]; });
  std::vector<double> corrected(p.size());
  double least = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    least = std::max(least, p[order[rank]] * static_cast<double>(p.size() - rank));
    corrected[order[rank]] = std::min(1.0, least);
  }
  return corrected;
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  AC_ASSERT(a.size() == b.size());
  if (a.size() < 2) return 0;
  const std::vector<double> left = ranks(a), right = ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    ab += (left[i] - mean) * (right[i] - mean);
    aa += (left[i] - mean) * (left[i] - mean);
    bb += (right[i] - mean) * (right[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

Curve expected_best(std::vector<double> shares, std::size_t attempts) {
  std::sort(shares.begin(), shares.end(), std::greater<>());
  const double all = static_cast<double>(shares.size());
  Curve curve;
  for (std::size_t n = 1; n <= attempts; ++n) {
    const double drawn = std::min(static_cast<double>(n), all);
    // That the best of the drawn is the k-th of all: none of the better ones, and it.
    double none_better = 1, expected = 0;
    for (std::size_t k = 0; k < shares.size() && none_better > 0; ++k) {
      const double left = all - static_cast<double>(k);
      const double chance = std::min(1.0, drawn / left);
      expected += none_better * chance * shares[k];
      none_better *= 1 - chance;
    }
    curve.push_back(static_cast<float>(expected));
  }
  return curve;
}

Hit expected_hit(std::size_t good, std::size_t all, std::size_t attempts) {
  Hit hit;
  double missed = 1;  // so far
  for (std::size_t n = 0; n <= attempts; ++n) {
    hit.attempts += missed;  // the sum of the chances that it takes more than n
    if (n == attempts) break;
    const double left = static_cast<double>(all) - static_cast<double>(n);
    missed = left > 0 ? missed * std::max(0.0, 1 - static_cast<double>(good) / left) : missed;
  }
  hit.reached = 1 - missed;
  return hit;
}

}  // namespace ac::study
