#include "admit/draw_subject.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/draw_plan.h"
#include "reference/draw.h"
#include "validate/buffers.h"

namespace ac {
namespace {

using validate::Elements;
using validate::Role;

enum Tensor : std::size_t { kLogits, kToken, kPosition, kSettings };

constexpr std::int64_t kWords = sizeof(kernels::DrawSettings) / sizeof(std::int32_t);
// Far beyond what float32 loses on its way to a score or a limit.
constexpr double kRounding = 1e-4;

std::int32_t word_of(float value) { return std::bit_cast<std::int32_t>(value); }

// Random words become a request that makes sense; some filters are off.
void make_settings(std::vector<double>& words) {
  const auto random = [&](std::size_t i) { return static_cast<std::int64_t>(words[i]); };
  const auto share = [&](std::size_t i) { return static_cast<float>(random(i) % 997) / 997; };
  const float temperature = 0.25f + 1.5f * share(2);
  const auto top_k = static_cast<std::int32_t>(random(3) % 3 == 0 ? 0 : 1 + random(3) % 300);
  const float top_p = random(4) % 3 == 0 ? 1 : 0.02f + 0.97f * share(4);
  const float min_p = random(5) % 3 == 0 ? 0.3f * share(5) : 0;
  const auto seed = static_cast<std::int32_t>(random(2) + random(5));
  words = {static_cast<double>(word_of(temperature)),
           static_cast<double>(top_k),
           static_cast<double>(word_of(top_p)),
           static_cast<double>(word_of(min_p)),
           static_cast<double>(seed),
           0};
}

kernels::DrawSettings settings_of(const std::vector<double>& words) {
  std::int32_t bytes[kWords];
  for (std::size_t i = 0; i < kWords; ++i) bytes[i] = static_cast<std::int32_t>(words[i]);
  kernels::DrawSettings settings;
  std::memcpy(&settings, bytes, sizeof settings);
  return settings;
}

}  // namespace

std::int32_t best_of(const std::vector<double>& logits) {
  std::size_t best = logits.size();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isnan(logits[i]) && (best == logits.size() || logits[i] > logits[best])) best = i;
  return best == logits.size() ? -1 : static_cast<std::int32_t>(best);
}

validate::Subject draw_subject(const Trial& trial) {
  validate::Subject subject;
  subject.tensors = {{.name = "logits", .dtype = trial.logits, .shape = {trial.vocab}},
                     {.name = "token", .dtype = DType::i32, .shape = {1}, .role = Role::state},
                     {.name = "position", .dtype = DType::i32, .shape = {1}, .high = 1 << 20},
                     {.name = "settings", .dtype = DType::i32, .shape = {kWords}, .high = 1 << 20}};
  subject.constrain = [](Elements& elements) {
    elements[kToken] = {static_cast<double>(std::max(best_of(elements[kLogits]), 0))};
    make_settings(elements[kSettings]);
  };
  subject.truth = subject.plain = [tokens = trial.tokens](const Elements& in) {
    const auto position = static_cast<std::int64_t>(in[kPosition][0]) + tokens;
    const std::int64_t token = draw_token(in[kLogits], settings_of(in[kSettings]), position);
    return Elements{{}, {static_cast<double>(token)}};
  };
  return subject;
}

void settle_draw(const validate::Subject& subject, const Trial& trial,
                 const validate::Buffers& buffers) {
  const auto elements = [&](Tensor t) {
    return validate::load_elements(subject.tensors[t], buffers[t]);
  };
  const std::vector<double> logits = elements(kLogits);
  const kernels::DrawSettings settings = settings_of(elements(kSettings));
  const std::int64_t position = static_cast<std::int64_t>(elements(kPosition)[0]) + trial.tokens;
  const auto got = static_cast<std::int64_t>(elements(kToken)[0]);
  if (!may_draw(logits, settings, position, got, kRounding)) return;
  const auto token = static_cast<std::int32_t>(draw_token(logits, settings, position));
  std::memcpy(buffers[kToken].data(), &token, sizeof token);
}

}  // namespace ac
