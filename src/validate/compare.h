// Whether what a kernel computed is near enough to the truth, given how near a plain implementation
// of the same dtypes comes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "validate/gate.h"

namespace ac::validate {

// One tensor after one launch.
struct Comparison {
  const TensorSpec& spec;
  const std::vector<double>& got;
  const std::vector<double>& truth;
  const std::vector<double>& plain;
  const std::vector<double>* old = nullptr;  // of a state: where the truth keeps it, `got` must too
  bool exact = false;                        // demanded wherever truth and plain agree
  // Whether errors of neighbours are independent: not of attention, where one score's is in all of
  // a head's outputs.
  bool independent = true;
};

struct Mismatch {
  std::string why;
  std::int64_t index = -1;
  double got = 0, wanted = 0, bound = 0;
};

struct Compared {
  std::optional<Mismatch> mismatch;
  double error = 0, plain_error = 0;  // the largest, over its bound
  bool is_inexact = false;            // the mismatch is one of errors
};

Compared compare(const Comparison& c, const GateOptions& options);

// Whether two truths differ by more than the errors that `compare` admits: an input on which no
// output depends that much cannot be judged.
bool differs(const TensorSpec& spec, const std::vector<double>& truth,
             const std::vector<double>& plain, const std::vector<double>& other_truth,
             const GateOptions& options);

// What single comparisons cannot see: errors that are all small, but larger on the whole than a
// plain implementation's, or that lean to one side. Collected over the random scenarios.
class Precision {
 public:
  void add(const Comparison& c);
  std::optional<Mismatch> judge(const TensorSpec& spec, const GateOptions& options) const;

 private:
  std::int64_t count_ = 0;
  double squares_ = 0, plain_squares_ = 0;  // of errors in units of the last place
  std::vector<double> leanings_;            // away from 0, one mean for each scenario
};

}  // namespace ac::validate
