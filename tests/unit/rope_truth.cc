#include "tests/unit/rope_truth.h"

#include <cmath>

namespace ac::kernels {

std::vector<Truth> RopeTruth::of(std::vector<Truth> x, const Input* norm, int position,
                                 bool turn) const {
  const std::size_t dim = x.size(), rotary = turn ? static_cast<std::size_t>(op.rotary) : 0;
  if (norm != nullptr) {
    double squares = 0, errors = 0;
    for (const Truth& d : x) squares += d.value * d.value, errors += d.error * d.error;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
    const double relative = std::sqrt(errors / static_cast<double>(dim)) * scale;
    for (std::size_t d = 0; d < dim; ++d) {
      const double factor = (norm->get(d) + norm_offset) * scale;
      x[d].value *= factor;
      x[d].error = std::fabs(factor) * x[d].error + relative * std::fabs(x[d].value);
    }
  }
  std::vector<Truth> y = x;
  for (std::size_t d = 0; d < dim; ++d) {
    if (d >= rotary) {
      if (norm != nullptr) y[d].error += 2e-6 * std::fabs(x[d].value);
      continue;
    }
    const std::size_t half = rotary / 2, pair = op.interleaved ? d / 2 : d % half;
    const bool second = op.interleaved ? d % 2 == 1 : d >= half;
    const Truth& other = x[op.interleaved ? d ^ 1 : second ? d - half : d + half];
    const double angle = double(position) * inv_freq.get(pair);
    y[d].value = rope_scale *
                 (x[d].value * std::cos(angle) + (second ? 1 : -1) * other.value * std::sin(angle));
    y[d].error = rope_scale * (x[d].error + other.error +
                               2.5e-6 * (std::fabs(x[d].value) + std::fabs(other.value)));
  }
  return y;
}

}  // namespace ac::kernels
