#include "compile/effort.h"

namespace ac {
namespace {

// The first two lie beyond what attention's plans take at once, where most of a short text is: what
// is fastest up to there may be the slowest right after.
constexpr std::int64_t kContexts[] = {288, 640, 2048, 8192, 20480, 49152, 122880};
constexpr std::int64_t kShort = 512;  // tokens, of which judging a candidate takes little time
constexpr std::int64_t kRoom = 64;    // of a package's tokens, for those that are timed

bool is_gpu_here(const CompileOptions& options) { return options.here && options.device.sm > 0; }

// Where a package that holds so many tokens is timed.
std::vector<std::int64_t> contexts(std::int64_t max_context) {
  std::vector<std::int64_t> fitting;
  for (const std::int64_t context : kContexts)
    if (context <= max_context - kRoom) fitting.push_back(context);
  if (fitting.empty()) fitting.push_back(max_context / 2);
  return fitting;
}

}  // namespace

SelectOptions select_options(const CompileOptions& options, std::int64_t tokens,
                             std::int64_t max_context) {
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
  if (tokens == 1) select.contexts = contexts(max_context);
  return select;
}

InContextOptions in_context_options(const CompileOptions& options, std::int64_t tokens,
                                    std::int64_t max_context) {
  InContextOptions in_context;
  in_context.limit = options.step_seconds.value_or(is_gpu_here(options) ? in_context.limit
                                                                        : std::chrono::seconds(0));
  in_context.tokens = tokens;
  if (options.here && in_context.limit.count() > 0)
    in_context.contexts = tokens == 1 ? contexts(max_context) : std::vector<std::int64_t>{0};
  return in_context;
}

}  // namespace ac
