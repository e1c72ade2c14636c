// Which of a program's phases runs a step.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "program/program.h"

namespace ac {

std::vector<const Launch*> Phase::all() const {
  std::vector<const Launch*> all;
  for (const std::vector<Launch>* some : {&launches, &draw, &masked})
    for (const Launch& launch : *some) all.push_back(&launch);
  return all;
}

std::string Phase::label() const { return from > 0 ? fmt::format("{} from {}", name, from) : name; }

const Phase& Program::phase_of(std::int64_t tokens, std::int64_t cached, Rows rows) const {
  const Phase* best = nullptr;
  for (const Phase& phase : phases)
    if (phase.rows == rows && phase.min_tokens <= tokens && tokens <= phase.max_tokens &&
        phase.from <= cached && (best == nullptr || best->from < phase.from))
      best = &phase;
  AC_ASSERT(best != nullptr);  // verify() says so of steps of 1 to longest_step() tokens
  return *best;
}

std::int64_t Program::longest_step(Rows rows) const {
  std::int64_t most = 0;
  for (const Phase& phase : phases)
    if (phase.rows == rows) most = std::max(most, phase.max_tokens);
  return most;
}

bool Program::draws() const { return !phases.empty() && !phases.front().draw.empty(); }

DType Program::ids_dtype() const {
  AC_ASSERT(!phases.empty());
  return buffers[static_cast<std::size_t>(phases.front().ids)].dtype;
}

}  // namespace ac
