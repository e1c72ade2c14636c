#include "base/product.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace ac {
namespace {
constexpr std::int64_t kMostSize = std::numeric_limits<std::int32_t>::max();
}

const char* why_impossible(const Product& product) {
  const auto fits = [](std::int64_t size) { return size >= 1 && size <= kMostSize; };
  if (!is_float(product.dtype)) return "a product is of floating-point numbers";
  if (!fits(product.n) || !fits(product.k)) return "the sizes of a product must be 1 to 2^31 - 1";
  if (product.x_pitch < product.k || product.x_pitch > kMostSize)
    return "the rows of x in a product must not overlap";
  if (!fits(product.tuned_m) || !fits(product.tuned_n))
    return "the sizes that an algorithm is chosen for must be 1 to 2^31 - 1";
  if (product.algorithm < 0 || product.algorithm > 1000)
    return "the algorithm of a product must be 0 to 1000";
  if (!std::isfinite(product.scale)) return "the scale of a product must be finite";
  if (product.bias && product.scale != 1) return "a product with a bias has no scale";
  return nullptr;
}

std::string name_of(const Product& product) {
  return fmt::format("cublaslt_{}{}{}_{}", short_name(product.dtype), product.bias ? "_bias" : "",
                     product.residual ? "_residual" : "", product.algorithm);
}

ProductParams check_params(const Product& product, std::span<const std::byte> params) {
  ProductParams p;
  if (params.size() != sizeof p)
    job_failed("{}: {} bytes of parameters instead of {}", name_of(product), params.size(),
               sizeof p);
  std::memcpy(&p, params.data(), sizeof p);
  if (p.m < 1 || p.m > kMostSize) job_failed("{}: a product of {} rows", name_of(product), p.m);
  return p;
}

}  // namespace ac
