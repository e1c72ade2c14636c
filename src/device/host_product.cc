#include "device/host_product.h"

#include <vector>

namespace ac {
namespace {

std::vector<float> row_of(DType dtype, const void* matrix, std::int64_t first, std::int64_t count) {
  const std::size_t size = bytes_of(dtype);
  const auto* from = static_cast<const std::byte*>(matrix) + static_cast<std::size_t>(first) * size;
  std::vector<float> row(static_cast<std::size_t>(count));
  for (float& element : row) element = static_cast<float>(load_element(dtype, from)), from += size;
  return row;
}

// In several sums, as a library's would be.
float dot(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr std::size_t kSums = 8;
  float sums[kSums] = {};
  for (std::size_t i = 0; i < a.size(); ++i) sums[i % kSums] += a[i] * b[i];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace

void multiply_on_host(const Product& product, std::span<const std::byte> params) {
  const ProductParams p = check_params(product, params);
  const DType dtype = product.dtype;
  std::vector<std::vector<float>> x;
  for (std::int64_t m = 0; m < p.m; ++m)
    x.push_back(row_of(dtype, p.x, m * product.x_pitch, product.k));
  for (std::int64_t n = 0; n < product.n; ++n) {
    const std::vector<float> weight = row_of(dtype, p.weight, n * product.k, product.k);
    const float bias = product.bias ? row_of(dtype, p.bias, n, 1)[0] : 0;
    for (std::int64_t m = 0; m < p.m; ++m) {
      const std::int64_t at = m * product.n + n;
      float y =
          static_cast<float>(product.scale) * dot(x[static_cast<std::size_t>(m)], weight) + bias;
      if (product.residual) y += row_of(dtype, p.residual, at, 1)[0];
      store_element(dtype, static_cast<double>(y),
                    static_cast<std::byte*>(p.y) + static_cast<std::size_t>(at) * bytes_of(dtype));
    }
  }
}

}  // namespace ac
