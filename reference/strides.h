// Walking a dense tensor in another order than its own: layout ops, broadcasting and reductions.
#pragma once

#include "reference/value.h"

namespace ac {

// How far apart neighbours along each axis are.
inline Sizes strides_of(const Sizes& shape) {
  Sizes strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

// Calls visit(base + sum of index * stride) for each index of `shape`, in row-major order.
template <class Visit>
void walk(const Sizes& shape, const Sizes& strides, std::int64_t base, Visit visit) {
  for (const std::int64_t size : shape)
    if (size == 0) return;
  if (shape.empty()) return visit(base);
  const std::size_t last = shape.size() - 1;
  Sizes index(shape.size());
  while (true) {
    for (std::int64_t i = 0; i < shape[last]; ++i) visit(base + i * strides[last]);
    // The next row: an odometer over the axes before the last.
    std::size_t axis = last;
    do {
      if (axis == 0) return;
      --axis;
      base += strides[axis];
      if (++index[axis] < shape[axis]) break;
      base -= shape[axis] * strides[axis];
      index[axis] = 0;
    } while (true);
  }
}

}  // namespace ac
