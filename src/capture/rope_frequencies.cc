#include "capture/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace ac {
namespace {

// theta^(2i / head_dim)
std::vector<float> wavelengths(double theta, std::int64_t head_dim) {
  const auto base = static_cast<float>(theta);
  std::vector<float> result;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    // Through double, so that the one rounding is the last.
    result.push_back(static_cast<float>(std::pow(double{base}, double{exponent})));
  }
  return result;
}

std::vector<float> plain(double theta, std::int64_t head_dim) {
  std::vector<float> inverse = wavelengths(theta, head_dim);
  for (float& value : inverse) value = 1.0f / value;
  return inverse;
}

// Long waves are slowed down by `factor`, short ones stay, those between are mixed.
std::vector<float> llama3(const RopeConfig& config, std::int64_t head_dim) {
  const auto original = static_cast<double>(config.original_max);
  const auto longest_kept = static_cast<float>(original / config.high_freq_factor);
  const auto shortest_scaled = static_cast<float>(original / config.low_freq_factor);
  const auto factor = static_cast<float>(config.factor);
  const auto low = static_cast<float>(config.low_freq_factor);
  const auto span = static_cast<float>(config.high_freq_factor - config.low_freq_factor);
  std::vector<float> inverse = plain(config.theta, head_dim);
  for (float& value : inverse) {
    // PyTorch evaluates number / tensor as reciprocal(tensor) * number.
    const float wavelength = (1.0f / value) * static_cast<float>(2 * std::numbers::pi);
    if (wavelength > shortest_scaled) {
      value /= factor;
    } else if (!(wavelength < longest_kept)) {
      const float turns = (1.0f / wavelength) * static_cast<float>(original);
      const float keep = (turns - low) / span;
      value = (1.0f - keep) * value / factor + keep * value;
    }
  }
  return inverse;
}

std::vector<float> yarn(const RopeConfig& config, std::int64_t head_dim) {
  const auto features = static_cast<double>(head_dim);
  // The pair that turns this often over the original positions.
  const auto pair_of = [&](double turns) {
    const auto original = static_cast<double>(config.original_max);
    return features * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(config.theta));
  };
  double first = pair_of(config.beta_fast), last = pair_of(config.beta_slow);
  if (config.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, features - 1);
  if (first == last) last += 0.001;

  const auto start = static_cast<float>(first), span = static_cast<float>(last - first);
  const auto factor = static_cast<float>(config.factor);
  std::vector<float> inverse = wavelengths(config.theta, head_dim);
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - start) / span, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float kept = 1.0f / inverse[i], slowed = 1.0f / (factor * inverse[i]);
    inverse[i] = slowed * (1.0f - keep) + kept * keep;
  }
  return inverse;
}

double yarn_scale(const RopeConfig& config) {
  if (config.attention_factor) return *config.attention_factor;
  const auto scale = [&](double mscale) {
    return config.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(config.factor) + 1.0;
  };
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return scale(config.mscale) / scale(config.mscale_all_dim);
  return scale(1);
}

RopeFrequencies undivided(const RopeConfig& config, std::int64_t head_dim) {
  switch (config.type) {
    case RopeType::plain:
      return {plain(config.theta, head_dim), 1.0};
    case RopeType::linear: {
      std::vector<float> inverse = plain(config.theta, head_dim);
      for (float& value : inverse) value /= static_cast<float>(config.factor);
      return {std::move(inverse), 1.0};
    }
    case RopeType::llama3:
      return {llama3(config, head_dim), 1.0};
    case RopeType::yarn:
      return {yarn(config, head_dim), yarn_scale(config)};
  }
  AC_UNREACHABLE();
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config, std::int64_t head_dim) {
  RopeFrequencies result = undivided(config, head_dim);
  if (config.divisors.empty()) return result;
  AC_ASSERT(config.divisors.size() == result.inverse.size());
  for (std::size_t i = 0; i < result.inverse.size(); ++i) result.inverse[i] /= config.divisors[i];
  return result;
}

}  // namespace ac
