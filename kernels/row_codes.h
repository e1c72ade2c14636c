// Rows of keys and values as codes of FP8 (E4M3) with a float32 scale each: a row is rounded to the
// element type first. The scale is the largest magnitude / 448, and no less than 2^-100 (NaN, if an
// element is); a code is element / scale, rounded to the nearest, ties to even. Who reads codes may
// take that of a NaN for any number: its row's scale is none.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

// What a row takes, in codes or as elements of the type.
constexpr int cached_row_bytes(bool fp8, Type type, int elements) {
  return fp8 ? elements + 4 : elements * bytes_of(type);
}

inline constexpr float most_e4m3 = 448;  // the largest that there is
inline constexpr float least_row_scale =
    0x1p-100f;  // of which even a code of 2^-9 is a normal number

}  // namespace ac::kernels
