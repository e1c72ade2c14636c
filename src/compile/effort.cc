#include "compile/effort.h"

namespace ac {
namespace {

constexpr std::size_t kQuickTries = 4;  // of which the first one that is admitted is taken
constexpr std::size_t kRaced = 5;     // the others meet in the step by what a shorter look has said
constexpr std::int64_t kShort = 512;  // tokens, of which judging a candidate takes little time

bool is_gpu_here(const CompileOptions& options) { return options.here && options.device.sm > 0; }

}  // namespace

SelectOptions select_options(const CompileOptions& options, bool quick, const PhaseSpec& phase,
                             std::int64_t max_context) {
  const std::int64_t tokens = phase.tuned_at;
  SelectOptions select;
  if (quick) {
    // What saves time on a GPU costs it on the host device: plain kernels are the better guess
    // there.
    select.tries = options.device.sm > 0 ? kQuickTries : 0, select.leaders = 1;
  } else if (is_gpu_here(options)) {
    select.tries = tokens > 1 ? 20 : 24;
    // What is best in the whole step may come behind ten others by itself.
    select.leaders = tokens == 1 ? 16 : tokens <= kShort ? 6 : 2;
    // An advisor hears of what is refused while it can still say something.
    select.judges_late = options.advisor == nullptr;
    select.raced = kRaced;
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

InContextOptions in_context_options(const CompileOptions& options, bool quick,
                                    const PhaseSpec& phase) {
  InContextOptions in_context;
  if (quick) return in_context;
  in_context.limit = options.step_seconds.value_or(is_gpu_here(options) ? in_context.limit
                                                                        : std::chrono::seconds(0));
  in_context.tokens = phase.tuned_at;
  if (options.here && in_context.limit.count() > 0)
    in_context.contexts = phase.contexts.empty() ? std::vector<std::int64_t>{0} : phase.contexts;
  return in_context;
}

}  // namespace ac
