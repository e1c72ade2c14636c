// A package whose model is a toy that plain C++ can follow: the next token is a function of the
// last tokens of a window, which its one kernel reads from a cache.
#pragma once

#include <vector>

#include "base/temporary_folder.h"
#include "program/program.h"

namespace ac::test {

struct Toy {
  std::int64_t vocab = 50, max_context = 40, chunk = 8;
  std::int64_t window = 0;  // 0: all
  DType ids = DType::i64;
  bool draws = false;           // whether it can draw tokens
  std::int64_t all_logits = 0;  // tokens of the longest step with the logits of each; 0: none
  std::int64_t together = 0;    // sequences that a step can have; 0: there is no such step
  float weight_of_17 = 1.375f;  // a large one makes its logit infinite now and then

  float weight_of(std::int64_t token) const;
  std::int64_t slots() const;
  Program program() const;
  // With program.json, constants.bin, kernels for the host and a checkpoint.
  void write(const std::filesystem::path& package) const;
  std::vector<double> logits(const std::vector<std::int64_t>& tokens) const;
  // What follows these tokens.
  std::int64_t next(const std::vector<std::int64_t>& tokens) const;
  // So many, one after the other.
  std::vector<std::int64_t> follow(std::vector<std::int64_t> tokens, std::int64_t count) const;
};

}  // namespace ac::test
