// A tensor of the reference executor. Every element is a double, whatever the dtype: exact
// arithmetic never rounds activations to it, and bools and integers (up to 2^53) are exact.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace ac {

using Sizes = std::vector<std::int64_t>;

struct Value {
  DType dtype = DType::f32;
  Sizes shape;
  std::vector<double> data;  // dense, row-major
};
using Values = std::map<std::string, Value>;  // by name of input or output

// Elements of each tensor of a state (state/state.h): [tokens, rows, size], every token kept. A
// code is kept as the number that it is rounded from, and rounded when it is read.
using StateData = std::vector<std::vector<double>>;

// How near attention scores come to what the graph assumes of them. Of several attentions, the one
// that comes nearest counts: its largest score by magnitude, and the largest that it assumes.
struct ScoresSeen {
  double largest = 0, within = 0;  // within is 0 where nothing is assumed

  void add(double most, double limit) {
    if (within == 0 || most * within > largest * limit) largest = most, within = limit;
  }
};

// What numbers an evaluation uses between its inputs and its outputs.
enum class Arithmetic : std::uint8_t {
  exact,  // doubles, never rounded: the truth
  plain,  // every value rounded to its dtype, sums in float32: what a plain implementation makes
  // The same of one that has weights as elements of their dtype, whatever codes they are stored as.
  elements,
};

// Asserts that the product fits.
std::int64_t element_count(const Sizes& shape);

std::string to_string(DType dtype, const Sizes& shape);  // "f16[3, 64]"

// Why `data` cannot be the elements of a tensor of `dtype`, or nothing: integers are whole and in
// range, bools are 0 or 1, floats are anything.
std::string why_not_elements(DType dtype, const std::vector<double>& data);

}  // namespace ac
