#include "tests/unit/sampling_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ac::kernels {

std::string run_sampling(const SamplingCase& c, const std::vector<float>& values) {
  Input logits(c.op.logits, values.size(), c.skip);
  for (std::size_t i = 0; i < values.size(); ++i) logits.set(i, values[i]);
  logits.remember();
  std::size_t best = 0, bad = values.size();
  for (std::size_t i = values.size(); i-- > 0;) {
    if (logits.get(i) >= logits.get(best)) best = i;
    if (!std::isfinite(logits.get(i))) bad = i;
  }
  int want = static_cast<int>(best);
  if (bad < values.size()) {
    const double value = logits.get(bad);
    // Below 0, with the row and what is wrong in it.
    want = -1 - 4 * static_cast<int>(bad) - (std::isnan(value) ? 0 : value > 0 ? 1 : 2);
  }

  SamplingParams p{};
  p.logits = logits.data(), p.vocab = static_cast<int>(values.size());
  const int grid = c.plan.grid(p.vocab, c.sms);
  std::vector<unsigned long long> block_best(static_cast<std::size_t>(grid), ~0ull);
  unsigned finished = 0;
  int token[3] = {-7, -7, -7};
  p.block_best = block_best.data(), p.finished_blocks = &finished, p.token = token + 1;
  for (int launch = 0; launch < 2; ++launch) {  // again, with what the first launch left behind
    token[1] = -7;
    const LaunchReport report = host_launch({.name = c.name,
                                             .grid = {static_cast<unsigned>(grid)},
                                             .block = {static_cast<unsigned>(c.plan.threads)},
                                             .schedule = c.schedule,
                                             .seed = c.seed,
                                             .check_races = c.check_races},
                                            c.kernel, p);
    if (!report.ok()) return report.error;
    if (token[1] != want) return fmt::format("{}: {} instead of {}", c.name, token[1], want);
    if (finished != 0) return fmt::format("{}: the block counter is not 0 again", c.name);
  }
  if (token[0] != -7 || token[2] != -7) return fmt::format("{}: wrote beside the token", c.name);
  return logits.unchanged() ? "" : fmt::format("{}: the logits changed", c.name);
}

}  // namespace ac::kernels
