// The kernel that ends a step (kernels/advance_plan.h) as a subject of the gate. It computes no op:
// what it must do is said here in plain C++.
#pragma once

#include "validate/subject.h"

namespace ac::validate {

// Of a step of so many tokens, with a log of `logged` positions, at each of `positions` before it.
// Tensors: `token` i32[1]; `ids` [tokens], of which only the first is written; `log` i32[logged];
// `position` i32[1]; `until` i32, the words of kernels::Until.
Subject subject_of_ending(DType ids, std::int64_t tokens, std::int64_t logged,
                          const std::vector<std::int64_t>& positions);

}  // namespace ac::validate
