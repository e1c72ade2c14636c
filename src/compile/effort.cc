#include "compile/effort.h"

namespace ac {
namespace {

constexpr std::int64_t kShort = 512;  // tokens, of which judging a candidate takes little time

bool is_gpu_here(const CompileOptions& options) { return options.here && options.device.sm > 0; }

}  // namespace

SelectOptions select_options(const CompileOptions& options, const PhaseSpec& phase,
                             std::int64_t max_context) {
  const std::int64_t tokens = phase.tuned_at;
  SelectOptions select;
  if (is_gpu_here(options)) {
    select.tries = tokens > 1 ? 20 : 24;
    // What is best in the whole step may come behind ten others by itself.
    select.leaders = tokens == 1 ? 16 : tokens <= kShort ? 6 : 2;
  } else if (options.here) {
    select.leaders = 1;  // judging one takes longer there than timing all
  }
  select.tries = options.tries.value_or(select.tries);
  select.preferred = options.preferred;
  if (options.here) select.log = options.log;
  select.max_context = max_context;
  select.contexts = phase.contexts;
  return select;
}

InContextOptions in_context_options(const CompileOptions& options, const PhaseSpec& phase) {
  InContextOptions in_context;
  in_context.limit = options.step_seconds.value_or(is_gpu_here(options) ? in_context.limit
                                                                        : std::chrono::seconds(0));
  in_context.tokens = phase.tuned_at;
  if (options.here && in_context.limit.count() > 0)
    in_context.contexts = phase.contexts.empty() ? std::vector<std::int64_t>{0} : phase.contexts;
  return in_context;
}

}  // namespace ac
