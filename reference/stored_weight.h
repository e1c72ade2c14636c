// A weight left in the bytes of its file and turned into doubles a piece at a time, so that running
// a model needs no second copy of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/weights.h"
#include "reference/value.h"

namespace ac {

class StoredWeight {
 public:
  // `dtype` is the graph's. Where it is narrower than the file's, the elements are rounded to it:
  // that is the value the graph's weight has, for whoever executes it.
  // `name` is for errors: an element that is too large for the graph's type is one (bad_input).
  StoredWeight(WeightView view, DType dtype, std::string name)
      : shape_(view.shape), views_{std::move(view)}, dtype_(dtype), name_(std::move(name)) {}
  // In a format, with a view of each part. Its elements are exact, and rounded to no type.
  StoredWeight(WeightFormat format, std::vector<WeightView> parts, Sizes shape, DType dtype,
               std::string name)
      : format_(std::move(format)),
        shape_(std::move(shape)),
        views_(std::move(parts)),
        dtype_(dtype),
        name_(std::move(name)) {}

  const Sizes& shape() const { return shape_; }
  // All of them, where they are doubles already; or null.
  const double* elements() const { return format_.is_plain() ? views_[0].elements : nullptr; }
  // Elements first .. first+count-1, in row-major order.
  void read(std::int64_t first, std::int64_t count, double* out) const;
  Value whole() const;

 private:
  void read_part(const WeightView& view, DType to, std::int64_t first, std::int64_t count,
                 double* out) const;

  WeightFormat format_ = traits({});
  Sizes shape_;
  std::vector<WeightView> views_;  // of each part
  DType dtype_;
  std::string name_;
};

}  // namespace ac
