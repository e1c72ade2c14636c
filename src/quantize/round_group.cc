#include "quantize/round_group.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/half.h"

namespace ac {
namespace {

// Adding and subtracting it rounds to whole numbers, ties to even, without a branch.
constexpr float kRounder = 0x1.8p23f;

struct WholeCodes {
  float middle;  // the most is one less

  double span() const { return (2.0 * middle - 1) / 2; }
  float operator()(float value) const {
    return std::min(std::max(value, -middle), middle - 1) + kRounder - kRounder;
  }
};

struct E4m3Codes {
  static constexpr float kMost = 448;

  double span() const { return kMost; }
  float operator()(float value) const {
    const float magnitude = std::min(std::fabs(value), kMost);
    const float normal =
        std::bit_cast<float>(round_bits(std::bit_cast<std::uint32_t>(magnitude), 20));
    // Below 2^-6, one unit is 2^-9, which is also one unit of a float near 2^14.
    const float tiny = magnitude + 0x1p14f - 0x1p14f;
    return std::copysign(magnitude < 0x1p-6f ? tiny : normal, value);
  }
};

// Sums of squares, in lanes of their own so that the loop can be vectorised.
constexpr std::size_t kLanes = 8;

template <class ToCode>
double squared_error(std::span<const float> weights, std::span<const float> importance,
                     double scale, const ToCode& to_code) {
  const auto inverse = static_cast<float>(1 / scale);
  std::array<double, kLanes> sums{};
  const auto add = [&](std::size_t at, std::size_t lane) {
    // The product of a code and a scale is exact in double precision.
    const double error = double{weights[at]} - double{to_code(weights[at] * inverse)} * scale;
    sums[lane] += error * error * double{importance[at]};
  };
  std::size_t at = 0;
  for (; at + kLanes <= weights.size(); at += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(at + lane, lane);
  for (std::size_t lane = 0; at < weights.size(); ++at, ++lane) add(at, lane);
  double sum = 0;
  for (const double of_lane : sums) sum += of_lane;
  return sum;
}

// Scales that are tried, as parts of the one that maps the largest weight to the largest code.
constexpr int kLeastFactor = 20, kMostFactor = 48, kWholeFactor = 40;
// From codes to the scale that suits them best, and back.
constexpr int kRefinements = 3;

template <class ToCode>
RoundedGroup search(DType scale_type, std::span<const float> weights,
                    std::span<const float> importance, std::span<float> codes,
                    const ToCode& to_code) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
  const double plain = largest / to_code.span();
  RoundedGroup best{1, INFINITY};
  const auto consider = [&](double wanted) {
    const double scale = round_to(scale_type, wanted);
    if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(static_cast<float>(1 / scale)))
      return false;
    const double error = squared_error(weights, importance, scale, to_code);
    if (!(error < best.squared_error)) return false;
    best = {scale, error};
    return true;
  };
  const auto make_codes = [&] {
    const auto inverse = static_cast<float>(1 / best.scale);
    for (std::size_t i = 0; i < weights.size(); ++i) codes[i] = to_code(weights[i] * inverse);
  };
  consider(plain);
  for (int factor = kLeastFactor; factor <= kMostFactor; ++factor)
    consider(plain * factor / kWholeFactor);
  // Zeros, or smaller than any scale.
  if (!std::isfinite(best.squared_error)) consider(1);
  make_codes();
  for (int i = 0; i < kRefinements; ++i) {
    double product = 0, square = 0;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const double counts = double{codes[k]} * double{importance[k]};
      product += double{weights[k]} * counts;
      square += double{codes[k]} * counts;
    }
    if (square == 0 || !consider(product / square)) break;
    make_codes();
  }
  return best;
}

}  // namespace

RoundedGroup round_group(Codes kind, DType scale_type, std::span<const float> weights,
                         std::span<const float> importance, std::span<float> codes) {
  if (!is_whole(kind)) return search(scale_type, weights, importance, codes, E4m3Codes{});
  return search(scale_type, weights, importance, codes,
                WholeCodes{static_cast<float>(middle_of(kind))});
}

}  // namespace ac
