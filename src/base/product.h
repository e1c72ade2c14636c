// A matrix product that a library of the device computes, as data: what a package stores instead of
// a kernel. y[m, n] = scale * x[m, k] W[n, k]^T (+ bias[n]) (+ residual[m, n]), all of one type,
// summed in float32 and rounded once.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.h"

namespace ac {

struct Product {
  DType dtype = DType::f16;
  std::int64_t n = 0, k = 0;
  std::int64_t x_pitch = 0;  // elements from row to row of x; the others have no gaps
  bool bias = false, residual = false;
  double scale = 1;  // 1 if there is a bias
  // Of the algorithms that the library proposes for a product of tuned_m x tuned_n x k, best first:
  // this one. It is taken for steps of more than half of tuned_m, as far as it can compute them;
  // for others, what the library thinks best.
  std::int32_t algorithm = 0;
  std::int64_t tuned_m = 0, tuned_n = 0;

  auto operator<=>(const Product&) const = default;
};

// The parameters of its launch, as a kernel has its own.
struct ProductParams {
  const void *x, *weight, *bias, *residual;
  void* y;
  std::int64_t m;
};

// Why there is no such product, or null.
const char* why_impossible(const Product& product);

// What launches are named by, in place of a kernel: type, epilogue and algorithm, but no sizes, as
// a kernel's name has none.
std::string name_of(const Product& product);

// The parameters as they lie in a launch; an error (job_failed) if they are none of such a product.
ProductParams check_params(const Product& product, std::span<const std::byte> params);

}  // namespace ac
