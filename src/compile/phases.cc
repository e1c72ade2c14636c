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

// The first two lie beyond what attention's plans take at once, where most of a short text is: what
// is fastest up to there may be the slowest right after.
constexpr std::int64_t kContexts[] = {288, 640, 2048, 8192, 20480, 49152, 122880};
constexpr std::int64_t kRoom = 64;  // of a package's tokens, for those that are timed

std::vector<std::int64_t> contexts(std::int64_t max_context) {
  std::vector<std::int64_t> fitting;
  for (const std::int64_t context : kContexts)
    if (context <= max_context - kRoom) fitting.push_back(context);
  if (fitting.empty()) fitting.push_back(max_context / 2);
  return fitting;
}

std::int64_t chunk_of(const CompileOptions& options, std::int64_t max_context) {
  if (options.chunk > max_context)
    warn("--chunk {}: a step has no more tokens than the package holds, {}", *options.chunk,
         max_context);
  return std::min(options.chunk.value_or(default_chunk(options.device)), max_context);
}

}  // namespace

std::vector<PhaseSpec> phases_of(const CompileOptions& options, std::int64_t max_context) {
  if (!options.phases.empty()) return options.phases;
  const std::int64_t chunk = chunk_of(options, max_context), few = 2 * options.short_prompt;
  const bool has_short = few > 0 && few < chunk;
  std::vector<PhaseSpec> phases;
  if (chunk > 1) phases.push_back({"prefill", has_short ? few + 1 : 2, chunk, chunk});
  if (has_short) phases.push_back({fmt::format("prefill to {}", few), 2, few, few / 2});
  phases.push_back({"decode", 1, 1, 1, contexts(max_context)});
  if (const std::int64_t rows = options.all_logits; rows > chunk)
    wrong_usage("--all-logits {}: a step has no more than {} tokens (--chunk)", rows, chunk);
  else if (rows > 0)
    phases.push_back({"all logits", 1, rows, rows, {}, Rows::all});
  return phases;
}

std::int64_t longest_step(const std::vector<PhaseSpec>& phases) {
  std::int64_t most = 1;
  for (const PhaseSpec& phase : phases) most = std::max(most, phase.max_tokens);
  return most;
}

StepGraph instance_of(const StepGraph& step, const PhaseSpec& phase) {
  if (phase.max_tokens == 1) return decode_instance(step);
  return phase.rows == Rows::all ? all_rows_instance(step) : prefill_instance(step);
}

}  // namespace ac
