#include "validate/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ac::validate {
namespace {

// By which errors are judged.
DType type_of(const TensorSpec& spec) { return spec.made_of.value_or(spec.dtype); }

// Half of what lies between the codes on both sides of a number.
double half_step(DType codes, double x) {
  AC_ASSERT(codes == DType::f8e4m3);
  return std::exp2(std::max(std::floor(std::log2(std::fabs(x))), -6.0) - 4);
}

// Half a unit in the last place, relative.
double roundoff(DType dtype) {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// Below this, a value may become 0 (float32 denormals are flushed by some implementations).
double smallest(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : 0x1p-126; }

// What the truth keeps of a state.
bool kept(const Comparison& c, std::size_t i) {
  if (c.old == nullptr) return false;
  const double before = (*c.old)[i], after = c.truth[i];
  return before == after || (std::isnan(before) && std::isnan(after));
}

// What errors of some elements are measured by.
struct Scale {
  double largest = 0;        // magnitude of the truth
  double plain_largest = 0;  // error of the plain implementation
  double plain_squares = 0;
  std::size_t count = 0;

  void add(double truth, double plain_error) {
    largest = std::max(largest, truth);
    plain_largest = std::max(plain_largest, plain_error);
    plain_squares += plain_error * plain_error;
    ++count;
  }
  void add(const Scale& other) {
    largest = std::max(largest, other.largest);
    plain_largest = std::max(plain_largest, other.plain_largest);
    plain_squares += other.plain_squares;
    count += other.count;
  }
  double plain_rms() const {
    return count == 0 ? 0 : std::sqrt(plain_squares / static_cast<double>(count));
  }
};

// Elements among which the plain implementation's largest error is no matter of luck.
constexpr std::size_t kEnough = 128;
// Where rounding moves the scores of a sharp softmax, a few results are far off, and luck decides
// how far: the plain implementation's largest error is then much more than its root mean square,
// and not small beside the largest value. So much more is allowed there.
constexpr double kHeavyTail = 12, kMuchError = 0x1p-7, kLuck = 4;

// The elements whose error means something, and what their errors are measured by: those of the
// whole tensor, of the rows that an element is in, and of the elements that are as large. Large
// errors of some thus hide no smaller ones of others.
class Errors {
 public:
  std::vector<std::size_t> judged;
  Scale all;

  explicit Errors(const Comparison& c) : truth_(c.truth), independent_(c.independent) {
    for (std::size_t i = 0; i < c.truth.size(); ++i)
      if (!kept(c, i) && std::isfinite(c.truth[i]) && std::isfinite(c.plain[i]))
        judged.push_back(i);
    const auto columns = c.spec.shape.empty() ? 1 : static_cast<std::size_t>(c.spec.shape.back());
    row_ = columns * ((kEnough + columns - 1) / columns);
    rows_.resize(c.truth.size() / row_ + 1);
    std::vector<Scale> of_exponent(kExponents);
    for (const std::size_t i : judged) {
      const double truth = std::fabs(c.truth[i]), error = std::fabs(c.plain[i] - c.truth[i]);
      all.add(truth, error);
      rows_[i / row_].add(truth, error);
      of_exponent[exponent(truth)].add(truth, error);
    }
    join_exponents(of_exponent);
  }

  // What rounding makes of scores varies from row to row: those near by count twice.
  double plain_largest(std::size_t i) const {
    return std::min(all.plain_largest, 2 * std::min(rows(i).plain_largest, sizes(i).plain_largest));
  }
  // Of the allowed errors: more where rounding decides the result.
  double luck() const {
    const bool is_luck = all.plain_largest > kHeavyTail * all.plain_rms() &&
                         all.plain_largest > kMuchError * all.largest;
    return is_luck ? kLuck : 1;
  }
  double plain_rms(std::size_t i) const {
    return std::min(all.plain_rms(), 2 * std::min(rows(i).plain_rms(), sizes(i).plain_rms()));
  }
  // What rounding the result costs at least. Float32 results may come out of approximate functions
  // and sums in another order; of a few elements, the plain errors may be small by luck.
  double floor(DType dtype, std::size_t i) const {
    const double units = dtype == DType::f32 ? 16 : judged.size() < 16 ? 3 : 1;
    // A tensor core truncates each of its sums; of thousands, that costs more than rounding them.
    const double cancelled = dtype == DType::f32 ? 0x1p-20 : 0x1p-18;
    return units * roundoff(dtype) * std::fabs(truth_[i]) + cancelled * rows(i).largest +
           smallest(dtype);
  }

 private:
  static constexpr int kExponents = 64;
  static std::size_t exponent(double truth) {
    if (truth == 0) return 0;
    return static_cast<std::size_t>(
        std::clamp(std::ilogb(truth) + kExponents / 2, 0, kExponents - 1));
  }
  // Neighbours go together until there are enough of them.
  void join_exponents(const std::vector<Scale>& of_exponent) {
    size_of_.resize(kExponents);
    sizes_.emplace_back();
    for (std::size_t e = 0; e < kExponents; ++e) {
      if (sizes_.back().count >= kEnough) sizes_.emplace_back();
      sizes_.back().add(of_exponent[e]);
      size_of_[e] = sizes_.size() - 1;
    }
  }
  const Scale& rows(std::size_t i) const {
    const Scale& scale = rows_[i / row_];
    return independent_ && scale.count >= kEnough ? scale : all;
  }
  const Scale& sizes(std::size_t i) const {
    const Scale& scale = sizes_[size_of_[exponent(std::fabs(truth_[i]))]];
    return independent_ && scale.count >= kEnough ? scale : all;
  }

  const std::vector<double>& truth_;
  const bool independent_;
  std::size_t row_ = 1;  // elements of a group of rows
  std::vector<Scale> rows_, sizes_;
  std::vector<std::size_t> size_of_;  // by exponent
};

// The largest that a type carries, rounding aside: what comes near it may be infinite.
double nearly_infinite(DType dtype) {
  return dtype == DType::f16 ? 65504 * (1 - 0x1p-5) : 0x1.8p127;
}

Mismatch mismatch(std::string why, std::size_t i, double got, double wanted, double bound) {
  return {std::move(why), static_cast<std::int64_t>(i), got, wanted, bound};
}

// What needs no bound: integers, states that stay, values that are not finite.
std::optional<Mismatch> compare_exactly(const Comparison& c) {
  const bool integer = !has_nan(c.spec.dtype);
  for (std::size_t i = 0; i < c.truth.size(); ++i) {
    const double got = c.got[i], truth = c.truth[i], plain = c.plain[i];
    if (kept(c, i)) {
      // Bytes of empty slots are compared by the gate.
      if (!std::isnan(truth) && got != truth)
        return mismatch("changed a part of the state that stays", i, got, truth, 0);
    } else if (integer) {
      if (got != truth && got != plain) return mismatch("is another integer", i, got, truth, 0);
    } else if (!std::isfinite(truth)) {
      if (std::isfinite(got)) return mismatch("is finite where the truth is not", i, got, truth, 0);
    } else if (std::isfinite(plain) && !std::isfinite(got) &&
               std::fabs(truth) < nearly_infinite(type_of(c.spec))) {
      return mismatch("is not finite where the truth is", i, got, truth, 0);
    } else if (c.exact && plain == truth && got != truth) {
      return mismatch("is not exact, though all sums are of small integers", i, got, truth, 0);
    }
  }
  return std::nullopt;
}

}  // namespace

Compared compare(const Comparison& c, const GateOptions& options) {
  Compared result;
  result.mismatch = compare_exactly(c);
  if (result.mismatch || !has_nan(c.spec.dtype)) return result;

  const DType dtype = type_of(c.spec);
  const bool is_code = ac::is_code(c.spec.dtype);
  const Errors errors(c);
  const double factor = options.factor * errors.luck();
  std::size_t unmatched = 0, worst = 0;
  double worst_bound = 0;
  for (const std::size_t i : errors.judged) {
    double floor = errors.floor(dtype, i);
    // The truth of a code is the number that it is rounded from.
    if (is_code)
      floor +=
          half_step(c.spec.dtype, std::fabs(c.truth[i]) + factor * errors.plain_largest(i) + floor);
    const double bound = factor * errors.plain_largest(i) + floor;
    if (!std::isfinite(c.got[i])) continue;  // nearly so in truth
    const double error = std::fabs(c.got[i] - c.truth[i]);
    if (error > factor * errors.plain_rms(i) + floor) ++unmatched;
    result.plain_error = std::max(result.plain_error, std::fabs(c.plain[i] - c.truth[i]) / bound);
    if (error / bound >= result.error) result.error = error / bound, worst = i, worst_bound = bound;
  }
  if (result.error > 1) {
    result.mismatch = mismatch("is further from the truth than the bound", worst, c.got[worst],
                               c.truth[worst], worst_bound);
  } else if (const double count = static_cast<double>(errors.judged.size());
             static_cast<double>(unmatched) > std::ceil((1 - options.matched) * count)) {
    result.mismatch =
        mismatch(fmt::format("has {} of {} elements further from the truth than {} times the plain "
                             "implementation's root mean square",
                             unmatched, errors.judged.size(), factor),
                 worst, c.got[worst], c.truth[worst], worst_bound);
  }
  result.is_inexact = result.mismatch.has_value();
  return result;
}

bool differs(const TensorSpec& spec, const std::vector<double>& truth,
             const std::vector<double>& plain, const std::vector<double>& other_truth,
             const GateOptions& options) {
  const Comparison c{spec, other_truth, truth, plain};
  if (!has_nan(spec.dtype)) return truth != other_truth;
  const Errors errors(c);
  for (const std::size_t i : errors.judged)
    if (std::isfinite(other_truth[i]) &&
        std::fabs(other_truth[i] - truth[i]) >
            2 * (options.factor * errors.all.plain_largest + errors.floor(type_of(spec), i)))
      return true;
  return false;
}

void Precision::add(const Comparison& c) {
  // Errors of codes are as large as their steps, and a largest magnitude leans away from 0.
  if (!is_float(c.spec.dtype) || c.spec.made_of) return;
  const Errors errors(c);
  if (errors.judged.empty()) return;
  double truth_squares = 0;
  for (const std::size_t i : errors.judged) truth_squares += c.truth[i] * c.truth[i];
  const auto count = static_cast<double>(errors.judged.size());
  const double typical = std::sqrt(truth_squares / count);
  const auto last_place = [&](double value) {
    const double magnitude = std::max(value, 16 * smallest(c.spec.dtype));
    return 2 * roundoff(c.spec.dtype) * std::exp2(std::floor(std::log2(magnitude)));
  };
  double leaning = 0, leaning_count = 0;
  for (const std::size_t i : errors.judged) {
    const double magnitude = std::fabs(c.truth[i]), got = c.got[i] - c.truth[i];
    // What is small because much cancelled has the errors of what is not.
    const double unit = last_place(std::max(magnitude, typical));
    squares_ += std::pow(got / unit, 2);
    plain_squares_ += std::pow((c.plain[i] - c.truth[i]) / unit, 2);
    if (magnitude < typical / 4) continue;
    leaning += (c.truth[i] < 0 ? -got : got) / last_place(magnitude);
    ++leaning_count;
  }
  count_ += static_cast<std::int64_t>(errors.judged.size());
  if (leaning_count > 0) leanings_.push_back(leaning / leaning_count);
}

std::optional<Mismatch> Precision::judge(const TensorSpec& spec, const GateOptions& options) const {
  if (count_ < 100 || leanings_.size() < 8) return std::nullopt;  // nothing to be sure of
  const auto count = static_cast<double>(count_);
  const double spread = std::sqrt(squares_ / count), plain = std::sqrt(plain_squares_ / count);
  const double slack = spec.dtype == DType::f32 ? 16 : 0.05;
  // Float32 sums in another order may be worse, but not by much.
  const double factor = spec.dtype == DType::f32 ? options.factor : options.spread_factor;
  const double most = factor * plain + slack;
  if (spread > most)
    return Mismatch{
        fmt::format("is {:.3g} units in the last place from the truth (root mean square "
                    "over all random scenarios), but a plain implementation {:.3g}",
                    spread, plain),
        -1, spread, plain, most};
  if (spec.dtype == DType::f32) return std::nullopt;

  const auto scenarios = static_cast<double>(leanings_.size());
  double mean = 0, squares = 0;
  for (const double leaning : leanings_) mean += leaning / scenarios;
  for (const double leaning : leanings_) squares += (leaning - mean) * (leaning - mean);
  const double error_of_mean = std::sqrt(squares / (scenarios - 1) / scenarios);
  constexpr double kMost = 0.2;
  if (std::fabs(mean) > kMost && std::fabs(mean) > 6 * error_of_mean)
    return Mismatch{fmt::format("leans to one side of the truth by {:.2g} units in the last place: "
                                "it is not rounded to nearest",
                                mean),
                    -1, mean, 0, kMost};
  return std::nullopt;
}

}  // namespace ac::validate
