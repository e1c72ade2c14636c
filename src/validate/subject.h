// What the admission gate judges: a kernel, as something that can be launched on raw bytes, and two
// functions that say what it should have left there. The gate knows no kernel family, no planner
// and no generator; whoever made a candidate describes it in these terms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/weight_format.h"

namespace ac::validate {

enum class TensorRole : std::uint8_t {
  input,      // activations and integers: read only
  weight,     // parameters: read only
  output,     // written in full
  state,      // read and written in place: a KV cache, a residual stream
  workspace,  // scratch; full of NaN before the first launch
  counter,    // scratch that is 0 before the first launch, and that every launch leaves at 0
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  TensorRole role = TensorRole::input;
  // Of integer inputs: the legal range, and values that deserve a run of their own (positions at
  // the edges of windows and tiles).
  std::int64_t low = 0, high = 0;
  std::vector<std::int64_t> edges = {};
  // Of floats: whether they may be as large as their type carries. Where scores of attention are
  // made of them, rounding alone would then choose what is attended to.
  bool may_be_huge = true;
  // Whether a maximum is taken of them, so that -inf and the least number may hide others; and, of
  // ids, whether they may be outside of the table, which gives rows of NaN.
  bool may_be_masked = false, may_be_outside = false;
  // Of a weight in a format (base/weight_format.h): which part, and how large its elements are.
  WeightPart::Kind part = WeightPart::Kind::elements;
  double typical = 1;
  double exact = 1;  // of scales: the power of two with which whole codes mean up to about 1
  // Of a state's codes and scales: the type of what they are made of. Errors are judged as its.
  std::optional<DType> made_of = std::nullopt;

  // In memory, one axis may be longer than in `shape`: the elements are repeated along it up to
  // this size. Kernels thus run with sizes whose elements take too long to compute with. 0: none
  // is.
  std::int64_t repeated_to = 0;
  std::size_t repeated_axis = 0;

  std::int64_t count() const;
  std::size_t bytes() const;  // in memory
  bool is_read() const {
    return role == TensorRole::input || role == TensorRole::weight || role == TensorRole::state;
  }
};

// The elements of each tensor of a subject, in its order. A NaN in a state is a slot that holds
// nothing: its bytes are poison, and the kernel must neither read nor write it.
using Elements = std::vector<std::vector<double>>;
using Buffers = std::vector<std::span<std::byte>>;

// Some of the rows of a subject: the indices of its outputs' first axis.
struct Rows {
  std::int64_t first = 0, count = 0;
};

// Outputs and new states, from inputs, weights and states; the other entries are not looked at. Of
// codes in a state, the numbers that are still to be rounded to them.
using Evaluate = std::function<Elements(const Elements&)>;
// The same where `written` has the states that a kernel left: outputs come of its codes and scales.
using EvaluateAfter = std::function<Elements(const Elements&, const Elements& written)>;
// The same of these rows alone: an output has no others.
using EvaluateRows = std::function<Elements(const Elements&, const Rows&)>;
// Launches the kernel and waits. Returns what went wrong, or "". `launch` counts launches: who can
// vary the order of threads or blocks does so by it.
using Run = std::function<std::string(const Buffers&, unsigned launch)>;
// The same of what computes one row by itself: it writes that row of the outputs.
using RunRow = std::function<std::string(const Buffers&, std::int64_t row, unsigned launch)>;

struct Subject {
  std::vector<TensorSpec> tensors;
  // In double precision, from elements that are already rounded to their dtypes.
  Evaluate truth;
  // The same with every intermediate value rounded to its dtype and sums in float32: how far an
  // honest implementation may be from the truth.
  Evaluate plain;
  Run run;
  // Where a row of the outputs must have the bits that it has by itself. Null: it need not.
  RunRow run_alone = nullptr;
  // Makes random elements legal where a range does not say enough (empties cache slots that hold no
  // token yet). May be null.
  std::function<void(Elements&)> constrain = nullptr;
  // Sums of products of inputs and weights, and nothing else: exact on small integers.
  bool linear = false;
  // Where no row of an output depends on other rows of the inputs: how many rows all outputs have,
  // and truth and plain implementation of some of them. 0: there are no such rows.
  std::int64_t rows = 0;
  EvaluateRows truth_of_rows = nullptr, plain_of_rows = nullptr;
  // Where a state has codes. A number near a border between two codes may become either of them: a
  // kernel's codes are judged by themselves, and what it computed with them is held to those codes.
  EvaluateAfter truth_after = nullptr, plain_after = nullptr;
};

}  // namespace ac::validate
