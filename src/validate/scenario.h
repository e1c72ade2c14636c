// Which inputs the gate runs a candidate on.
#pragma once

#include <string>
#include <vector>

#include "validate/gate.h"

namespace ac::validate {

enum class Pattern : std::uint8_t {
  random,
  equal,  // every activation the same
  one_hot,
  alternating,    // +1, -1, ...
  bits,           // activations and weights 0 or 1: linear subjects must be exact
  repeated_rows,  // rows of weights that are equal to each other: ties
  dynamic_range,  // magnitudes over many powers of two
  denormal,
  outliers,  // a few huge columns
  sorted,
  tiny,          // what an epsilon is for
  large,         // and of one sign: exponentials overflow unless a maximum is subtracted
  negative,      // all below what stands where there is nothing
  huge,          // near what the type carries, where only rounding would not choose what comes out
  rows_apart,    // activations of rows, and weights of outputs, that are of different size
  signed_zeros,  // equal to each other, though their bits are not
  cancelling,    // sums of which little is left: what their order does to them shows in 16 bits
  // Hostile: what comes of it may be no number.
  a_nan,  // one element of one input
  an_infinity,
  masked,   // rows that begin with -inf, hold nothing else, or the least number alone
  outside,  // ids that no row of the table has
};
constexpr bool is_hostile(Pattern pattern) { return pattern >= Pattern::a_nan; }

struct Scenario {
  std::string name;
  Pattern pattern = Pattern::random;
  unsigned seed = 1;
  double scale = 1;         // of the activations
  std::size_t edge = 0;     // which of the integer inputs' edges
  std::size_t hostile = 0;  // the tensor with the NaN or infinity
};

std::vector<Scenario> scenarios_for(const Subject& subject, const GateOptions& options);
// With a NaN in this tensor.
Scenario with_nan(const Subject& subject, const GateOptions& options, std::size_t tensor);

// Elements of all inputs, weights and states, rounded to their dtypes and made legal.
Elements elements_of(const Subject& subject, const Scenario& scenario);
// The same with one tensor drawn anew.
Elements with_another(const Subject& subject, const Scenario& scenario, std::size_t tensor);

}  // namespace ac::validate
