#include "validate/ending_subject.h"

#include <algorithm>

#include "base/error.h"

namespace ac::validate {
namespace {

enum : std::size_t { kToken, kIds, kLog, kPosition };

}  // namespace

Subject subject_of_ending(DType ids, std::int64_t tokens, std::int64_t logged,
                          const std::vector<std::int64_t>& positions) {
  AC_ASSERT(!positions.empty());
  // Both halves of a wide one have bits that a narrow write would leave.
  const std::int64_t old = ids == DType::i64 ? (std::int64_t{3} << 40) + 7 : 7;
  Subject subject;
  subject.tensors = {{.name = "token",
                      .dtype = DType::i32,
                      .shape = {1},
                      .low = -(std::int64_t{1} << 31),
                      .high = (std::int64_t{1} << 31) - 1},
                     // What is there must stay, and any one number shows whether it does.
                     {.name = "ids",
                      .dtype = ids,
                      .shape = {tokens},
                      .role = Role::state,
                      .low = old,
                      .high = old},
                     {.name = "log",
                      .dtype = DType::i32,
                      .shape = {logged},
                      .role = Role::state,
                      .low = -1,
                      .high = -1},
                     {.name = "position",
                      .dtype = DType::i32,
                      .shape = {1},
                      .role = Role::state,
                      .low = std::ranges::min(positions),
                      .high = std::ranges::max(positions),
                      .edges = positions}};
  subject.truth = subject.plain = [=](const Elements& in) {
    Elements out = in;
    const double token = in[kToken][0];
    const auto position = static_cast<std::int64_t>(in[kPosition][0]) + tokens;
    out[kIds][0] = std::max(token, 0.0);
    if (position < logged) out[kLog][static_cast<std::size_t>(position)] = token;
    out[kPosition][0] = static_cast<double>(position);
    return out;
  };
  return subject;
}

}  // namespace ac::validate
