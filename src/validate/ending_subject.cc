#include "validate/ending_subject.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "kernels/advance_plan.h"

namespace ac::validate {
namespace {

enum : std::size_t { kToken, kIds, kLog, kPosition, kUntil };

constexpr std::int64_t kMostId = 100;

// The tokens left, and which of the ids a step begins with: the first or last stop id, the one
// behind the stop ids, or none of them. Seven, so that all meet all of the six positions.
struct Case {
  int left;
  enum { other, first, last, behind } begins_with;
};
constexpr std::array<Case, 7> kCases = {{{-1, Case::other},
                                         {-1, Case::first},
                                         {5, Case::last},
                                         {0, Case::other},
                                         {1, Case::behind},
                                         {-1, Case::behind},
                                         {3, Case::other}}};

// Before a step whose first token is `first`.
bool has_ended(const std::vector<double>& until, double first) {
  const auto ids = std::span(until).subspan(2, static_cast<std::size_t>(until[1]));
  return until[0] == 0 || std::ranges::find(ids, first) != ids.end();
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
                      .role = TensorRole::state,
                      .low = -(std::int64_t{1} << 31),
                      .high = (std::int64_t{1} << 31) - 1},
                     // What is there must stay, and any one number shows whether it does.
                     {.name = "ids",
                      .dtype = ids,
                      .shape = {tokens},
                      .role = TensorRole::state,
                      .low = old,
                      .high = old},
                     {.name = "log",
                      .dtype = DType::i32,
                      .shape = {logged},
                      .role = TensorRole::state,
                      .low = -1,
                      .high = -1},
                     {.name = "position",
                      .dtype = DType::i32,
                      .shape = {1},
                      .role = TensorRole::state,
                      .low = std::ranges::min(positions),
                      .high = std::ranges::max(positions),
                      .edges = positions},
                     // Its first word chooses a case.
                     {.name = "until",
                      .dtype = DType::i32,
                      .shape = {2 + kernels::most_stop_ids},
                      .role = TensorRole::state,
                      .low = 0,
                      .high = kMostId,
                      .edges = {0, 1, 2, 3, 4, 5, 6}}};
  subject.constrain = [](Elements& in) {
    std::vector<double>& until = in[kUntil];
    const Case& chosen = kCases[static_cast<std::size_t>(until[0]) % kCases.size()];
    auto stops = static_cast<std::int64_t>(until[1]) % (kernels::most_stop_ids + 1);
    if (chosen.begins_with == Case::first || chosen.begins_with == Case::last)
      stops = std::max<std::int64_t>(stops, 1);
    if (chosen.begins_with == Case::behind)
      stops = std::min<std::int64_t>(stops, kernels::most_stop_ids - 1);
    until[0] = chosen.left, until[1] = static_cast<double>(stops);
    for (std::int64_t i = 0; i < kernels::most_stop_ids; ++i)
      until[static_cast<std::size_t>(2 + i)] += static_cast<double>(i * (kMostId + 1));
    const std::int64_t id = chosen.begins_with == Case::first  ? 0
                            : chosen.begins_with == Case::last ? stops - 1
                                                               : stops;
    if (chosen.begins_with != Case::other) in[kIds][0] = until[static_cast<std::size_t>(2 + id)];
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
