#include "compile/phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/warning.h"
#include "compile/compile.h"
#include "compile/states.h"
#include "ir/incrementalise.h"

namespace ac {
namespace {

// A geometric grid of cached tokens. The first lies beyond what attention's plans take at once:
// what is fastest up to there may be the slowest right after.
constexpr std::int64_t kFirstContext = 288, kContextGrowth = 3;
constexpr std::int64_t kRoom = 64;  // of a package's tokens, for those that are timed

std::vector<std::int64_t> contexts(std::int64_t max_context) {
  std::vector<std::int64_t> fitting;
  for (std::int64_t at = kFirstContext; at <= max_context - kRoom; at *= kContextGrowth)
    fitting.push_back(at);
  if (fitting.empty()) fitting.push_back(max_context / 2);
  return fitting;
}

std::int64_t chunk_of(const CompileOptions& options, std::int64_t max_context) {
  if (options.chunk > max_context)
    warn("--chunk {}: a step has no more tokens than the package holds, {}", *options.chunk,
         max_context);
  return std::min(options.chunk.value_or(default_chunk(options.device)), max_context);
}

void check_slots(const CompileOptions& options, std::int64_t longest) {
  if (options.slots > longest)
    wrong_usage("--slots {}: a step has no more than {} tokens (--chunk)", options.slots, longest);
}

}  // namespace

std::vector<PhaseSpec> phases_of(const CompileOptions& options, std::int64_t max_context) {
  if (!options.phases.empty()) return options.phases;
  const std::int64_t chunk = chunk_of(options, max_context), few = 2 * options.short_prompt;
  const bool has_short = few > 0 && few < chunk;
  check_slots(options, chunk);
  std::vector<PhaseSpec> phases;
  if (chunk > 1) phases.push_back({"prefill", has_short ? few + 1 : 2, chunk, chunk});
  if (has_short) phases.push_back({fmt::format("prefill to {}", few), 2, few, few / 2});
  phases.push_back({"decode", 1, 1, 1, contexts(max_context), Rows::last, options.slots > 1});
  if (const std::int64_t rows = options.all_logits; rows > chunk)
    wrong_usage("--all-logits {}: a step has no more than {} tokens (--chunk)", rows, chunk);
  else if (rows > 0)
    phases.push_back({"all logits", 1, rows, rows, {}, Rows::all});
  return phases;
}

std::vector<PhaseSpec> together_phases(const CompileOptions& options, std::int64_t longest) {
  check_slots(options, longest);
  std::vector<PhaseSpec> phases;
  for (std::int64_t done = 0, most = 2; options.slots > 1 && done < options.slots; most *= 2) {
    const std::int64_t last = std::min(most, options.slots);
    phases.push_back({fmt::format("together {}", last), done + 1, last, last, {}, Rows::each});
    done = last;
  }
  return phases;
}

std::vector<PhaseSpec> quick_phases(std::vector<PhaseSpec> phases) {
  for (PhaseSpec& phase : phases) phase.contexts.clear();
  const auto is_prompt = [](const PhaseSpec& phase) {
    return phase.rows == Rows::last && phase.max_tokens > 1;
  };
  const auto longest = std::ranges::max_element(
      phases, {}, [&](const PhaseSpec& phase) { return is_prompt(phase) ? phase.max_tokens : 0; });
  if (longest == phases.end() || !is_prompt(*longest)) return phases;
  longest->min_tokens = 2;
  std::erase_if(phases, [&, most = longest->max_tokens](const PhaseSpec& phase) {
    return is_prompt(phase) && phase.max_tokens < most;
  });
  return phases;
}

StepGraph instance_of(const StepGraph& step, const PhaseSpec& phase) {
  if (phase.max_tokens == 1) return decode_instance(step);
  return phase.rows == Rows::all ? all_rows_instance(step) : prefill_instance(step);
}

}  // namespace ac
