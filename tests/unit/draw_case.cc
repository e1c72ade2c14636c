#include "tests/unit/draw_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ac::kernels {

DrawRun::DrawRun(const DrawCase& c, const std::vector<float>& values, std::optional<int> greedy)
    : case_(c),
      input_(c.logits, values.size(), c.skip),
      bins_(draw_bins_bytes / 8),
      block_best_(static_cast<std::size_t>(c.plan.grid(static_cast<int>(values.size())))) {
  for (std::size_t i = 0; i < values.size(); ++i) input_.set(i, values[i]);
  input_.remember();
  for (std::size_t i = 0; i < values.size(); ++i) stored_.push_back(input_.get(i));
  greedy_ = greedy.value_or(
      static_cast<int>(std::max_element(stored_.begin(), stored_.end()) - stored_.begin()));
  std::memset(&state_, 0xff, sizeof state_);
}

int DrawRun::draw(const DrawSettings& settings, int position) {
  int token[3] = {-7, greedy_, -7};
  unsigned finished = 0;
  const int tokens = 3, before = position - tokens;
  std::fill(block_best_.begin(), block_best_.end(), ~0ull);
  DrawParams p{};
  p.logits = input_.data(), p.vocab = static_cast<int>(stored_.size());
  p.tokens = tokens, p.position = &before, p.settings = &settings;
  p.bins = bins_.data(), p.finished_blocks = &finished, p.state = &state_;
  p.block_best = block_best_.data(), p.token = token + 1;
  for (const auto kernel : case_.kernels) {
    const LaunchReport report =
        host_launch({.name = case_.name,
                     .grid = {static_cast<unsigned>(case_.plan.grid(p.vocab))},
                     .block = {static_cast<unsigned>(case_.plan.threads)},
                     .schedule = case_.schedule,
                     .seed = case_.seed,
                     .check_races = case_.check_races},
                    kernel, p);
    if (!report.ok() && error_.empty()) error_ = report.error;
    if (finished != 0) error_ = fmt::format("{}: the block counter is not 0 again", case_.name);
  }
  if (std::any_of(bins_.begin(), bins_.end(), [](unsigned long long bin) { return bin != 0; }))
    error_ = fmt::format("{}: the histograms are not 0 again", case_.name);
  if (token[0] != -7 || token[2] != -7) error_ = fmt::format("{}: wrote beside", case_.name);
  if (!input_.unchanged()) error_ = fmt::format("{}: the logits changed", case_.name);
  return token[1];
}

}  // namespace ac::kernels
