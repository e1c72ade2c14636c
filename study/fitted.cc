#include "study/fitted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lab/measure.h"
#include "study/statistics.h"

namespace ac::study {
namespace {

constexpr std::size_t kLeastPoints = 40, kLeastReferences = 5;
// Penalties of ridge regression on times over their mean: they hold the term of a site, and that of
// a pair, near 0.
constexpr double kSingle = 1e-3, kPair = 2e-2;
constexpr int kSteps = 2000;  // of conjugate gradients, at most
constexpr double kTolerance = 1e-10;
constexpr double kFastest = 0.05;

// The same in every build.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 1469598103934665603u;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return hash ^ (hash >> 32);
}

double percentile(std::vector<double> values, double part) {
  const auto at = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

struct Row {
  std::vector<int> terms;
  double scale = 0;  // 1 / time: errors are relative
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The weights that minimise the sum over rows of (scale * sum of its terms - 1)^2, plus the sum of
// penalty * weight^2.
std::vector<double> ridge(const std::vector<Row>& rows, const std::vector<double>& penalties) {
  const auto apply = [&](const std::vector<double>& x) {
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = penalties[i] * x[i];
    for (const Row& row : rows) {
      double sum = 0;
      for (const int term : row.terms) sum += x[static_cast<std::size_t>(term)];
      sum *= row.scale * row.scale;
      for (const int term : row.terms) y[static_cast<std::size_t>(term)] += sum;
    }
    return y;
  };
  std::vector<double> x(penalties.size()), left(penalties.size()), inverse = penalties;
  for (const Row& row : rows)
    for (const int term : row.terms) {
      left[static_cast<std::size_t>(term)] += row.scale;
      inverse[static_cast<std::size_t>(term)] += row.scale * row.scale;
    }
  for (double& value : inverse) value = 1 / value;
  const auto precondition = [&](std::vector<double> of) {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] *= inverse[i];
    return of;
  };
  std::vector<double> z = precondition(left), direction = z;
  double now = dot(left, z);
  const double enough = now * kTolerance * kTolerance;
  for (int step = 0; step < kSteps && now > enough; ++step) {
    const std::vector<double> applied = apply(direction);
    const double length = now / dot(direction, applied);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] += length * direction[i], left[i] -= length * applied[i];
    z = precondition(left);
    const double next = dot(left, z);
    for (std::size_t i = 0; i < x.size(); ++i) direction[i] = z[i] + next / now * direction[i];
    now = next;
  }
  return x;
}

}  // namespace

FittedStep::FittedStep(const TimedTable& table) {
  AC_ASSERT(table.sites);
  std::size_t count = 1;  // of what all schedules take
  for (const search::Site& site : table.sites->sites)
    first_.push_back(count), count += site.choices.size();
  std::vector<std::size_t> fitted, held_out;
  double mean = 0;
  for (std::size_t i = 0; i < table.points.size(); ++i) {
    if (!table.points[i].outcome().ok()) continue;
    (hash_of(table.points[i].point.id) % 2 == 0 ? fitted : held_out).push_back(i);
    mean += table.points[i].outcome().microseconds;
  }
  if (std::min(fitted.size(), held_out.size()) < kLeastPoints)
    bad_input("{}: {} schedules were measured, too few to fit anything to", table.description,
              fitted.size() + held_out.size());
  mean /= static_cast<double>(fitted.size() + held_out.size());
  const std::size_t singles = count;
  for (const std::size_t i : fitted) {
    const std::vector<int>& schedule = table.sampled[i].schedule;
    std::size_t before = schedule.size();
    for (std::size_t site = 0; site < schedule.size(); ++site) {
      if (schedule[site] < 0) continue;
      if (before < site) {
        const std::array key{static_cast<int>(before), schedule[before], static_cast<int>(site),
                             schedule[site]};
        if (pairs_.emplace(key, static_cast<int>(count)).second) ++count;
      }
      before = site;
    }
  }
  std::vector<double> penalties(count, kPair);
  std::fill_n(penalties.begin(), singles, kSingle);
  penalties[0] = kSingle * kSingle;
  std::vector<Row> rows;
  for (const std::size_t i : fitted)
    rows.push_back(
        {terms(table.sampled[i].schedule), mean / table.points[i].outcome().microseconds});
  weights_ = ridge(rows, penalties);
  for (double& weight : weights_) weight *= mean;

  std::vector<double> errors, predicted, measured, fastest;
  for (const std::size_t i : held_out) {
    measured.push_back(table.points[i].outcome().microseconds);
    predicted.push_back(microseconds(table.sampled[i].schedule));
    errors.push_back(std::abs(predicted.back() / measured.back() - 1));
  }
  const double bound = percentile(measured, kFastest);
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (measured[i] <= bound) fastest.push_back(errors[i]);
  errors_ = {.fitted = fitted.size(), .held_out = held_out.size()};
  errors_.median = percentile(errors, 0.5), errors_.most = percentile(errors, 0.95);
  errors_.median_of_fastest = percentile(fastest, 0.5);
  errors_.rank_correlation = rank_correlation(predicted, measured);
  std::vector<double> references, apart;
  for (const std::vector<double>& samples : table.references)
    references.push_back(ac::median(samples));
  if (references.size() < kLeastReferences)
    bad_input("{}: its reference was timed {} times, too few to know the noise of a timing",
              table.description, references.size());
  const double middle = ac::median(references);
  for (const double reference : references) apart.push_back(std::abs(reference / middle - 1));
  errors_.noise = percentile(apart, 0.95), errors_.references = references.size();
}

std::vector<int> FittedStep::terms(const std::vector<int>& schedule) const {
  std::vector<int> terms{0};
  std::size_t before = schedule.size();
  for (std::size_t site = 0; site < schedule.size(); ++site) {
    if (schedule[site] < 0) continue;
    terms.push_back(static_cast<int>(first_[site]) + schedule[site]);
    if (before < site) {
      const auto pair = pairs_.find(
          {static_cast<int>(before), schedule[before], static_cast<int>(site), schedule[site]});
      if (pair != pairs_.end()) terms.push_back(pair->second);
    }
    before = site;
  }
  return terms;
}

double FittedStep::microseconds(const std::vector<int>& schedule) const {
  double sum = 0;
  for (const int term : terms(schedule)) sum += weights_[static_cast<std::size_t>(term)];
  return std::max(sum, 1e-3);
}

std::string FittedStep::why_not() const {
  if (errors_.median < errors_.noise && errors_.median_of_fastest < errors_.noise) return "";
  return fmt::format(
      "the model of it errs by {:.2f} % (median of {} schedules that it was not fitted to; {:.2f} "
      "% "
      "of the fastest of them), and two timings of one schedule differ by {:.2f} %",
      100 * errors_.median, errors_.held_out, 100 * errors_.median_of_fastest, 100 * errors_.noise);
}

}  // namespace ac::study
