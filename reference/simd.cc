#include <cstring>

#include "reference/ops_internal.h"

// Built for wide registers too, where the processor has them. Results have the same bits: the order
// of each sum is the same, and no product is fused with a sum (-ffp-contract=off).
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define AC_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define AC_CLONES
#endif

namespace ac {
namespace {

// Without -ffast-math a compiler may not split a sum into lanes; this says that it may.
constexpr std::int64_t kLanes = 4, kSingles = 8;
typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));
typedef float Singles __attribute__((vector_size(kSingles * sizeof(float))));

// Rows of a matrix that meet a vector together: it is loaded once for all of them.
constexpr std::int64_t kTile = 4;

template <std::int64_t rows>
[[gnu::always_inline]] inline void tile(const Matrix<double>& a, std::int64_t first,
                                        const double* b, double* out, std::int64_t stride) {
  Lanes even[rows]{}, odd[rows]{};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= a.columns; i += 2 * kLanes) {
    Lanes x[2], y[2];
    std::memcpy(y, b + i, sizeof y);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(x, a.row(first + row) + i, sizeof x);
      even[row] += x[0] * y[0];
      odd[row] += x[1] * y[1];
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const Lanes sum = even[row] + odd[row];
    double total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (std::int64_t at = i; at < a.columns; ++at) total += a.row(first + row)[at] * b[at];
    out[(first + row) * stride] = total;
  }
}

template <std::int64_t rows>
[[gnu::always_inline]] inline void tile(const Matrix<float>& a, std::int64_t first, const float* b,
                                        double* out, std::int64_t stride) {
  Singles sums[rows]{};
  std::int64_t i = 0;
  for (; i + kSingles <= a.columns; i += kSingles) {
    Singles x, y;
    std::memcpy(&y, b + i, sizeof y);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(&x, a.row(first + row) + i, sizeof x);
      sums[row] += x * y;
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t at = i; at < a.columns; ++at)
      sums[row][at % kSingles] += a.row(first + row)[at] * b[at];
    float total = 0;
    for (std::int64_t lane = 0; lane < kSingles; ++lane) total += sums[row][lane];
    out[(first + row) * stride] = total;
  }
}

template <typename Number>
[[gnu::always_inline]] inline void all_tiles(const Matrix<Number>& a, const Number* b, double* out,
                                             std::int64_t stride) {
  std::int64_t row = 0;
  for (; row + kTile <= a.rows; row += kTile) tile<kTile>(a, row, b, out, stride);
  for (; row < a.rows; ++row) tile<1>(a, row, b, out, stride);
}

}  // namespace

AC_CLONES void dots(const Matrix<double>& a, const double* b, double* out, std::int64_t stride) {
  all_tiles(a, b, out, stride);
}

AC_CLONES void dots(const Matrix<float>& a, const float* b, double* out, std::int64_t stride) {
  all_tiles(a, b, out, stride);
}

AC_CLONES void narrow(const double* from, std::int64_t size, float* to) {
  for (std::int64_t i = 0; i < size; ++i) to[i] = static_cast<float>(from[i]);
}

AC_CLONES void add_scaled(double* sum, double factor, const double* x, std::int64_t size) {
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

AC_CLONES void add_scaled_plain(double* sum, float factor, const double* x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i)
    sum[i] = static_cast<float>(sum[i]) + factor * static_cast<float>(x[i]);
}

void add_scaled(Arithmetic arithmetic, double* sum, double factor, const double* x,
                std::int64_t size) {
  if (arithmetic == Arithmetic::exact) return add_scaled(sum, factor, x, size);
  add_scaled_plain(sum, static_cast<float>(factor), x, size);
}

}  // namespace ac
