// A weight left in the bytes of its file and turned into doubles a piece at a time, so that running
// a model needs no second copy of it.
#pragma once

#include <cstdint>
#include <string>

#include "ir/weights.h"
#include "reference/value.h"

namespace ac {

class StoredWeight {
 public:
  // `dtype` is the graph's. Where it is narrower than the file's, the elements are rounded to it:
  // that is the value the graph's weight has, for whoever executes it.
  // `name` is for errors: an element that is too large for the graph's type is one (bad_input).
  StoredWeight(WeightView view, DType dtype, std::string name)
      : view_(std::move(view)), dtype_(dtype), name_(std::move(name)) {}

  const Sizes& shape() const { return view_.shape; }
  // All of them, where they are doubles already; or null.
  const double* elements() const { return view_.elements; }
  // Elements first .. first+count-1, in row-major order.
  void read(std::int64_t first, std::int64_t count, double* out) const;
  Value whole() const;

 private:
  WeightView view_;
  DType dtype_;
  std::string name_;
};

}  // namespace ac
