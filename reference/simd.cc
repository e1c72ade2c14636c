#include <cstring>

#include "reference/ops_internal.h"

namespace ac {
namespace {

// Without -ffast-math a compiler may not split a sum into lanes; this says that it may.
constexpr std::int64_t kLanes = 4;
typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));

}  // namespace

double dot(const double* a, const double* b, std::int64_t size) {
  Lanes even{}, odd{};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    Lanes x[2], y[2];
    std::memcpy(x, a + i, sizeof x);
    std::memcpy(y, b + i, sizeof y);
    even += x[0] * y[0];
    odd += x[1] * y[1];
  }
  even += odd;
  double total = (even[0] + even[1]) + (even[2] + even[3]);
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

void add_scaled(double* sum, double factor, const double* x, std::int64_t size) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Lanes s, y;
    std::memcpy(&s, sum + i, sizeof s);
    std::memcpy(&y, x + i, sizeof y);
    s += factor * y;
    std::memcpy(sum + i, &s, sizeof s);
  }
  for (; i < size; ++i) sum[i] += factor * x[i];
}

double dot(Arithmetic arithmetic, const double* a, const double* b, std::int64_t size) {
  if (arithmetic == Arithmetic::exact) return dot(a, b, size);
  float lanes[8] = {};
  for (std::int64_t i = 0; i < size; ++i)
    lanes[i % 8] += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

void add_scaled(Arithmetic arithmetic, double* sum, double factor, const double* x,
                std::int64_t size) {
  if (arithmetic == Arithmetic::exact) return add_scaled(sum, factor, x, size);
  for (std::int64_t i = 0; i < size; ++i)
    sum[i] = static_cast<float>(sum[i]) + static_cast<float>(factor) * static_cast<float>(x[i]);
}

}  // namespace ac
