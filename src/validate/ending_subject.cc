#include "validate/ending_subject.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/advance_plan.h"

namespace ac::validate {
namespace {

enum : std::size_t { kToken, kIds, kLog, kPosition, kUntil };

constexpr std::int64_t kMostId = 2 * kernels::most_stop_ids;

// Before a step whose first token is `first`.
bool has_ended(const std::vector<double>& until, double first) {
  const auto ids = until.begin() + 2;
  return until[0] == 0 || std::find(ids, ids + static_cast<std::ptrdiff_t>(until[1]), first) !=
                              ids + static_cast<std::ptrdiff_t>(until[1]);
}

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
                      .role = Role::state,
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
                      .edges = positions},
                     // As many edges as have no factor in common with positions' six.
                     {.name = "until",
                      .dtype = DType::i32,
                      .shape = {2 + kernels::most_stop_ids},
                      .role = Role::state,
                      .low = -1,
                      .high = kMostId,
                      .edges = {-1, 0, 5, 1, -1}}};
  subject.constrain = [=](Elements& in) {
    const auto stops =
        static_cast<std::size_t>(std::max(in[kUntil][1], 0.0)) % (kernels::most_stop_ids + 1);
    in[kUntil][1] = static_cast<double>(stops);
    // Half of the steps begin with one of these ids: the last stop id, or any, stop id or not.
    const auto chosen = static_cast<std::size_t>(std::abs(in[kToken][0]));
    if (chosen % 2 == 0) return;
    const std::size_t which =
        chosen % 4 == 1 ? std::max<std::size_t>(stops, 1) - 1 : chosen / 4 % kernels::most_stop_ids;
    in[kIds][0] = in[kUntil][2 + which];
  };
  subject.truth = subject.plain = [=](const Elements& in) {
    Elements out = in;
    const double token = in[kToken][0];
    const auto position = static_cast<std::int64_t>(in[kPosition][0]) + tokens;
    if (const double first = in[kIds][0]; has_ended(in[kUntil], first)) {
      out[kToken][0] = static_cast<std::int32_t>(static_cast<std::int64_t>(first));
      return out;
    }
    if (in[kUntil][0] > 0) out[kUntil][0] = in[kUntil][0] - 1;
    out[kIds][0] = std::max(token, 0.0);
    if (position < logged) out[kLog][static_cast<std::size_t>(position)] = token;
    out[kPosition][0] = static_cast<double>(position);
    return out;
  };
  return subject;
}

}  // namespace ac::validate
