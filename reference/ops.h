// One evaluator for every op of the table. Sums, activations and intermediate steps are doubles,
// unless the arithmetic is `plain`: then products are summed in float32, and who calls rounds each
// result to its dtype.
//
// What the op table leaves open:
// - A dtype is a label: casting between floats changes nothing, since activations are not rounded.
//   Casting a float to an integer truncates; to bool, it is whether the float differs from 0.
// - Integers behave as integers: div truncates towards zero (in C++'s way), and a result that is
//   not an integer of its dtype (division by zero, a negative power, overflow, the cast of a NaN)
//   is an error. So is an i64 beyond 2^53.
// - NaN and infinity propagate through float ops as in IEEE arithmetic; maximum, minimum and amax
//   of a NaN are NaN. A softmax over nothing but -inf is NaN. mean and amax over no elements are
//   NaN and -inf.
// - Tokens that an attention does not see have no influence, even when they hold a NaN.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "reference/stored_weight.h"
#include "reference/value.h"

namespace ac {

// An input of an op: computed values, or a weight still in its file's bytes.
class Operand {
 public:
  explicit Operand(const Value& value) : value_(&value) {}
  explicit Operand(const StoredWeight& stored) : stored_(&stored) {}

  const Sizes& shape() const { return stored_ ? stored_->shape() : value_->shape; }
  const Value& value() const;  // asserts that it is not a stored weight
  // Elements first .. first+count-1; in `scratch`, if they had to be converted.
  const double* read(std::int64_t first, std::int64_t count, std::vector<double>& scratch) const;

 private:
  const Value* value_ = nullptr;
  const StoredWeight* stored_ = nullptr;
};

// Whether the evaluator takes that input as a stored weight. All other inputs must be values.
bool takes_stored(Op op, std::size_t input);

struct Call {
  const Graph& graph;
  NodeId id;
  std::vector<Operand> inputs;
  Sizes shape;  // of the result
  Bindings bindings;
  StateData* state = nullptr;  // of an op that writes one
  // What the op's tokens left there, where that is codes and somebody else has rounded to them.
  const StateData* appended = nullptr;
  ScoresSeen* scores = nullptr;  // where who calls wants to know
  int threads = 1;
  Arithmetic arithmetic = Arithmetic::exact;

  const Node& node() const { return graph[id]; }
  const Value& operator[](std::size_t i) const { return inputs[i].value(); }
  std::string where() const { return describe(graph, id); }
  // What is summed or computed in float32 where arithmetic is plain.
  double in_float(double x) const {
    return arithmetic == Arithmetic::exact ? x : static_cast<float>(x);
  }
  Value result() const;  // of the right type, filled with zeros
};

// Any op but input and weight, which are given to the executor. The graph has been verified, and
// the inputs have the shapes that the graph says.
Value evaluate_op(const Call& call);

}  // namespace ac
