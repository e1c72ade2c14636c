// The admission gate: no kernel is selected, timed or packaged that did not pass it. It asks
// - interface: can this subject be judged at all? Every input must matter to some output.
// - launch: does every run end without an error?
// - memory: outputs and scratch are poisoned, buffers lie between canaries at fresh addresses;
//   nothing is left unwritten, nothing else is touched.
// - numerics: the error against a double-precision truth is at most a small multiple of what a
//   plain implementation of the same dtypes makes, over random inputs at several scales, structured
//   inputs, and inputs with infinities and NaN.
// - repeatability: the same inputs give the same bits, in other memory, over other poison, in
//   another order of threads, and after a launch with other inputs on the same buffers.
// - same bits: a row has the bits that it has by itself, where the subject promises that.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validate/subject.h"

namespace ac::validate {

enum class Stage : std::uint8_t { interface, launch, memory, numerics, repeatability, same_bits };
std::string_view to_string(Stage stage);

struct GateOptions {
  int seeds = 5;  // times the scales: the random scenarios
  std::vector<double> scales = {1, 3, 0.01, -1};
  bool structured = true;
  bool essential = false;  // of structured scenarios, those alone that no other one stands for
  bool hostile = true;
  bool one_of_a_shape = false;  // a weight is hostile for all others of its shape
  bool asks_influence = true;   // whether every input matters
  int repeats = 1;              // of a scenario, on fresh buffers with other poison
  // Scenarios that are repeated, and followed by others on the same buffers; those after them run
  // once.
  int repeated = std::numeric_limits<int>::max();
  // Rows whose truth is computed in each scenario, others in the next; 0: all.
  std::int64_t rows_at_once = 0;
  // More than one: rows_at_once of them are judged so many times in each scenario, the first rows,
  // the last ones and some between, and no other row may have been left out.
  std::int64_t samples = 1;
  unsigned first_seed = 1;
  unsigned first_launch = 0;   // launches are counted from here: what lies around tensors varies
  double factor = 3;           // of the plain implementation's largest error
  double spread_factor = 1.5;  // of its root mean square over all random scenarios
  double matched = 0.9;        // share of elements within `factor` of its root mean square
};

// Why a candidate may not be used, for a person to act on.
struct Rejection {
  Stage stage = Stage::interface;
  std::string reason = {};  // a sentence with all that follows in it
  std::string scenario = {};
  unsigned seed = 0;
  std::string tensor = {};
  std::int64_t index = -1;  // of the element, if it is about one
  double got = 0, wanted = 0, bound = 0;
};

// How well a scenario went: the worst element of one tensor.
struct Figure {
  std::string scenario;
  std::string tensor;
  double error = 0;        // over its bound: 1 is the most that is admitted
  double plain_error = 0;  // the plain implementation's, over the same bound
};

struct Verdict {
  std::optional<Rejection> rejection;
  std::vector<Figure> figures;
  int scenarios = 0, launches = 0;
  bool admitted() const { return !rejection.has_value(); }
  Figure worst() const;  // the one with the largest error
};

Verdict admit(const Subject& subject, const GateOptions& options = {});

}  // namespace ac::validate
