// What may be said of searches that were repeated on several spaces. Levels of chance are, from the
// top: kinds of spaces (those of one kind, as a product of several models, say nearly the same),
// spaces, the replies where there is advice, repetitions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ac::study {

using Curve = std::vector<float>;  // after 1, 2, 3 ... attempts
// By space, then repetition: at least one of each; all curves of equal length.
using Curves = std::vector<std::vector<Curve>>;
// By space: how many replies its repetitions took in turn, each as often. Empty: there are none.
using Draws = std::vector<std::size_t>;

// Of each space its kind, as any number. Empty: each is of its own.
using Kinds = std::vector<std::size_t>;

struct Interval {
  double mean = 0, low = 0, high = 0;  // 95 %
};

// Of the mean over spaces of the mean over repetitions, at each number of attempts: kinds are drawn
// again, of each as many spaces as it has, of each the replies, and of each of those the
// repetitions (hierarchical bootstrap, percentiles).
std::vector<Interval> bootstrap(const Curves& curves, std::size_t resamples, std::uint64_t seed,
                                const Draws& draws = {}, const Kinds& kinds = {});
// Of the difference, paired by space: one draw of spaces serves both.
std::vector<Interval> bootstrap_difference(const Curves& a, const Curves& b, std::size_t resamples,
                                           std::uint64_t seed, const Draws& draws_of_a = {},
                                           const Draws& draws_of_b = {}, const Kinds& kinds = {});

// How likely a mean at least this far from 0 is if each difference might as well have the other
// sign. All signs are tried for up to 16 differences, else 20,000 random ones.
double sign_flip_p(std::span<const double> differences, std::uint64_t seed);
// Holm's correction of p-values for how many they are; in their order.
std::vector<double> holm(std::span<const double> p);
// Of several values for each kind, their sum.
std::vector<double> sums_by_kind(std::span<const double> values, const Kinds& kinds);

// Spearman's, with shared ranks for equal values; 0 where there is nothing to rank.
double rank_correlation(std::span<const double> a, std::span<const double> b);

// The best of n drawn without replacement. `shares`: what each point is worth, 0 of a failure. The
// expected best after 1, 2 ... attempts.
Curve expected_best(std::vector<double> shares, std::size_t attempts);
// Expected attempts to the first of `good` points among `all`, where more than `attempts` count as
// attempts + 1, and how likely it is to take no more than `attempts`.
struct Hit {
  double attempts = 0, reached = 0;
};
Hit expected_hit(std::size_t good, std::size_t all, std::size_t attempts);

}  // namespace ac::study
