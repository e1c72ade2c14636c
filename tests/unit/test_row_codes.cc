// Codes of keys and values: rounding, scales and what reads them, for all codes and around every
// border between two.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/row_codes.cuh"

namespace ac::kernels {
namespace {

double value_of(unsigned code) {
  const auto byte = static_cast<std::uint8_t>(code);
  return load_element(DType::f8e4m3, &byte);
}

double rounded(float x) { return value_of(nearest_e4m3(x).bits); }

TEST_CASE("row codes: numbers become the nearest code, ties the even one") {
  for (unsigned code = 0; code < 0x7e; ++code) {
    const double low = value_of(code), high = value_of(code + 1);
    const auto border = static_cast<float>((low + high) / 2);  // exact
    for (const float sign : {1.f, -1.f}) {
      CHECK(rounded(sign * static_cast<float>(low)) == sign * low);
      CHECK(rounded(sign * std::nextafter(border, 0.f)) == sign * low);
      CHECK(rounded(sign * border) == sign * (code % 2 == 0 ? low : high));
      CHECK(rounded(sign * std::nextafter(border, 1e9f)) == sign * high);
    }
  }
  for (const float large : {448.f, 464.f, 500.f, 1e30f, INFINITY}) {
    CHECK(rounded(large) == 448);
    CHECK(rounded(-large) == -448);
  }
  CHECK(std::isnan(rounded(NAN)));
  CHECK(std::signbit(rounded(-0.f)));
  CHECK(rounded(0x1p-11f) == 0);
}

TEST_CASE("row codes: scales") {
  const auto scale = [](float largest) { return row_scale(magnitude_bits(largest)); };
  CHECK(scale(448) == doctest::Approx(1));
  CHECK(scale(-7) == doctest::Approx(7.0 / 448));
  CHECK(scale(0) == least_row_scale);
  CHECK(scale(1e-35f) == least_row_scale);
  CHECK(std::isinf(scale(INFINITY)));
  CHECK(std::isnan(scale(NAN)));
  CHECK(magnitude_bits(-NAN) > magnitude_bits(INFINITY));
  CHECK(magnitude_bits(INFINITY) > magnitude_bits(3e38f));
  // The largest of a row is the largest code, whatever it is.
  for (float largest = 1e-25f; largest < 1e38f; largest *= 1.37f)
    CHECK(rounded(largest * inverse_scale(scale(largest))) == 448);
  CHECK(rounded(0 * inverse_scale(scale(0))) == 0);
}

template <class T>
void check_widened() {
  for (unsigned word = 0; word < 256; ++word) {
    const unsigned codes[4] = {word, (word + 85) % 256, (word * 7) % 256, 255 - word};
    const uint2 got = widen_codes<T>(codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24);
    const float2 low = unpack_pair<T>(got.x), high = unpack_pair<T>(got.y);
    const float elements[4] = {low.x, low.y, high.x, high.y};
    for (int i = 0; i < 4; ++i) {
      if ((codes[i] & 0x7f) == 0x7f) continue;  // its scale is no number
      CHECK(static_cast<double>(elements[i]) == value_of(codes[i]));
      CHECK(std::signbit(elements[i]) == (codes[i] > 127));
    }
  }
}

TEST_CASE("row codes: codes as elements of 16-bit types") {
  check_widened<f16>();
  check_widened<bf16>();
}

}  // namespace
}  // namespace ac::kernels
