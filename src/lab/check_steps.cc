#include "lab/check_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace ac {
namespace {

using Kind = CheckStep::Kind;

constexpr std::int64_t kSmallestTile = 16, kFewTokens = 3;
// Steps of one token in a row: each place in a tile of so many keys is the last one once.
constexpr std::int64_t kInARow = kSmallestTile;
constexpr std::int64_t kBackTokens = 3, kBackMore = 2;  // and one more that it chooses

class Chooser {
 public:
  explicit Chooser(const Program& program)
      : room_(program.max_context),
        chunk_(program.longest_step()),
        rows_(program.longest_step(Rows::all)) {
    for (const Phase& phase : program.phases) {
      if (phase.rows == Rows::each) {
        together_.insert({phase.from, phase.max_tokens});
        continue;
      }
      if (phase.from > 0) later_.insert({phase.from, phase.min_tokens});
      if (phase.rows == Rows::last && phase.max_tokens < chunk_) ends_.insert(phase.max_tokens);
    }
    for (const StateSpec& state : program.states) {
      if (state.window > 0) rings_.insert(state.window);
      if (state.slots < room_) rings_.insert({state.slots, 2 * state.slots});
    }
  }

  // What finds most comes first.
  std::vector<CheckStep> all() {
    const std::int64_t most = std::min(chunk_, room_);
    const std::int64_t last = room_ > most ? 1 : 0;
    add({Kind::after, room_ - 1, 1, 0});
    add({Kind::prompt, 0, most, last});
    if (room_ > kBackTokens + kBackMore)
      add({Kind::back, 0, std::min(kBackTokens, most), kBackMore});
    add({Kind::after, room_ - most, most, 0});
    for (const std::int64_t tokens : {std::min(rows_, kFewTokens), rows_})
      for (const std::int64_t cached : {room_ - tokens, std::int64_t{0}})
        if (tokens > 0) add({Kind::rows, cached, tokens, 0});
    for (const auto& [from, tokens] : together_)
      add({Kind::together, std::min(from, room_ - tokens), tokens, 0});
    for (const auto& [from, tokens] : later_) {
      add({Kind::after, from - 1, tokens, 2});
      add({Kind::after, from, tokens, 0});
    }
    for (const std::int64_t ring : rings_) add({Kind::after, ring - 1, 1, 1});
    // Not at an edge, and with as many tokens behind it as there can be.
    add({Kind::after, room_ - room_ / 4 - kInARow, 1, kInARow - 1});
    // The longest step of a phase, and the shortest of the next one.
    for (const std::int64_t tokens : ends_)
      for (const std::int64_t near : {tokens, tokens + 1})
        add({Kind::after, room_ / 2 - near, near, 0});
    for (const std::int64_t ring : rings_) {
      if (rows_ > 0) add({Kind::rows, ring - rows_ / 2, rows_, 0});
      add({Kind::after, ring - kFewTokens + 1, kFewTokens, 0});
      add({Kind::prompt, 0, ring + 1, 1});
    }
    for (const std::int64_t tile : tiles()) {
      add({Kind::after, tile - 2, 1, 2});
      add({Kind::after, tile - kFewTokens + 1, kFewTokens, 0});
    }
    for (const std::int64_t tile : tiles())
      for (const std::int64_t near : {tile + 1, tile - 1, tile})
        if (near <= chunk_) add({Kind::after, room_ / 3, near, 0});
    // Several chunks, of which the last is not a whole one.
    for (const std::int64_t tokens : {chunk_ + 1, 2 * chunk_ + 3, room_ - 2})
      add({Kind::prompt, 0, tokens, 2});
    return std::move(steps_);
  }

 private:
  std::vector<std::int64_t> tiles() const {
    std::vector<std::int64_t> tiles;
    for (std::int64_t tile = kSmallestTile; tile <= room_; tile *= 2) tiles.push_back(tile);
    return tiles;
  }

  void add(const CheckStep& step) {
    const bool makes_sense = step.cached >= 0 && step.tokens >= 1 && step.more >= 0 &&
                             (step.kind != Kind::back || step.more > 0);
    if (makes_sense && step.end() <= room_ && std::ranges::find(steps_, step) == steps_.end())
      steps_.push_back(step);
  }

  const std::int64_t room_, chunk_, rows_;
  std::set<std::pair<std::int64_t, std::int64_t>> later_;     // from, tokens of a step
  std::set<std::pair<std::int64_t, std::int64_t>> together_;  // from, sequences
  std::set<std::int64_t> ends_, rings_;
  std::vector<CheckStep> steps_;
};

std::string tokens(std::int64_t count) {
  return fmt::format("{} token{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string describe(const CheckStep& step) {
  const std::string then =
      step.more > 0 ? fmt::format(", then {} of one token", step.more) : std::string();
  switch (step.kind) {
    case Kind::after:
      return fmt::format("a step of {} after {}{}", tokens(step.tokens), step.cached, then);
    case Kind::prompt:
      return fmt::format("a prompt of {}{}", tokens(step.tokens), then);
    case Kind::rows:
      return fmt::format("all logits of a step of {} after {}", tokens(step.tokens), step.cached);
    case Kind::back:
      return fmt::format("a prompt of {}, which truncate and append go back to from {}",
                         tokens(step.tokens), tokens(step.more));
    case Kind::together:
      return fmt::format("a step of {} sequences after {} and more", step.tokens, step.cached);
  }
  AC_UNREACHABLE();
}

Json to_json(const CheckStep& step) {
  return {static_cast<int>(step.kind), step.cached, step.tokens, step.more};
}

CheckStep check_step_from_json(const Json& json) {
  return {static_cast<Kind>(json.at(0).get<int>()), json.at(1), json.at(2), json.at(3)};
}

CheckSteps check_steps(const Program& program, const std::function<double(const CheckStep&)>& work,
                       double most) {
  CheckSteps chosen;
  double spent = 0;
  for (const CheckStep& step : Chooser(program).all()) {
    const double needed = work(step);
    const bool fits = spent + needed <= most;
    if (fits) spent += needed;
    (fits ? chosen.steps : chosen.left_out).push_back(step);
  }
  // Steps over random states come in a row: the states are filled once.
  std::ranges::stable_sort(chosen.steps, {}, &CheckStep::kind);
  return chosen;
}

std::vector<std::string> phases_of(const Program& program, std::int64_t cached, std::int64_t tokens,
                                   Rows rows) {
  std::vector<const Phase*> used;
  const std::int64_t longest = program.longest_step(rows);
  for (std::int64_t at = 0; at < tokens; at += longest)
    used.push_back(&program.phase_of(std::min(tokens - at, longest), cached + at, rows));
  std::vector<std::string> labels;
  for (const Phase& phase : program.phases)
    if (std::ranges::find(used, &phase) != used.end()) labels.push_back(phase.label());
  return labels;
}

std::vector<std::string> kernels_of(const Program& program,
                                    const std::vector<std::string>& phases) {
  std::set<std::string> kernels;
  for (const Phase& phase : program.phases)
    if (std::ranges::find(phases, phase.label()) != phases.end())
      for (const Launch& launch : phase.launches)
        kernels.insert(launch.product ? "a library's product" : launch.kernel);
  return {kernels.begin(), kernels.end()};
}

}  // namespace ac
