#include "admit/draw_subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/draw_plan.h"
#include "kernels/sampling_plan.h"
#include "program/draw.h"
#include "program/sampling.h"
#include "validate/buffers.h"

namespace ac {
namespace {

using validate::Elements;

enum Tensor : std::size_t { kLogits, kToken, kPosition, kSettings };

constexpr std::int64_t kWords = sizeof(kernels::DrawSettings) / sizeof(std::int32_t);
// Far beyond what float32 loses on its way to a score or a limit.
constexpr double kRounding = 1e-4;
// Less than a cell of the grid that distances are told apart on, and more than float32 loses of
// one.
constexpr double kLastCell = 0x1p-18;

std::int32_t word_of(float value) { return std::bit_cast<std::int32_t>(value); }

// Random words become a request that makes sense.
void make_settings(std::vector<double>& words) {
  const auto random = [&](std::size_t i) { return static_cast<std::int64_t>(words[i]); };
  const auto share = [&](std::size_t i) { return static_cast<float>(random(i) % 997) / 997; };
  // One filter alone, or all of them: together, one hides the others.
  const std::int64_t filter = random(2) % 4;
  const auto is_on = [&](std::int64_t which) { return filter == which || filter == 3; };
  const float temperature = 0.25f + 1.5f * share(2);
  const std::int64_t most = random(3) % 3 == 0 ? 1 : 300;
  const auto top_k = static_cast<std::int32_t>(is_on(0) ? 1 + random(3) % most : 0);
  // Now and then, only the likeliest is kept.
  const float few_p = random(4) % 8 == 0 ? 1e-20f : 0.02f + 0.97f * share(4);
  const float top_p = is_on(1) ? few_p : 1;
  const float most_p = filter == 2 && random(5) % 3 == 0 ? 1 : 0.4f * share(5);
  const float min_p = is_on(2) ? most_p : 0;
  const auto seed = static_cast<std::int32_t>(random(2) + random(5));
  words = {static_cast<double>(word_of(temperature)),
           static_cast<double>(top_k),
           static_cast<double>(word_of(top_p)),
           static_cast<double>(word_of(min_p)),
           static_cast<double>(seed),
           0};
}

// A few tokens can be drawn, of which one is in the last cell of the grid and one near it; top-k
// asks for all of them, for all but the last, or for more than there are.
void make_edge(DType dtype, std::vector<double>& logits, std::vector<double>& settings,
               std::int64_t random) {
  constexpr double kFarthest = 16, kBeyond = 24;
  const std::int64_t vocab = std::ssize(logits), few = std::min(3 + random % 40, vocab);
  std::ranges::fill(logits, -kBeyond);
  for (std::int64_t i = 0; i < few; ++i) {
    const double share = i == 0   ? 0
                         : i == 1 ? 1
                         : i == 2 ? 1 - 0x1p-10
                                  : 0.9 * static_cast<double>(i) / static_cast<double>(few);
    logits[static_cast<std::size_t>(i * (vocab / few))] = round_to(dtype, -kFarthest * share);
  }
  constexpr double kDistance = static_cast<double>(kernels::draw_range) - 6e-6;
  const std::int64_t asked = few + std::array{-1, 0, 3}[static_cast<std::size_t>(random % 3)];
  settings = {static_cast<double>(word_of(static_cast<float>(kFarthest / kDistance))),
              static_cast<double>(std::max<std::int64_t>(asked, 1)),
              static_cast<double>(word_of(1)),
              static_cast<double>(word_of(0)),
              static_cast<double>(random),
              0};
}

// The first half of the tokens are as likely as can be, so that weights of blocks are as large as
// they get; top-p is about their share.
void make_halves(DType dtype, std::vector<double>& logits, std::vector<double>& settings,
                 std::int64_t random) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = i < logits.size() / 2 ? 1 : round_to(dtype, -static_cast<double>(i % 3) / 4);
  settings = {static_cast<double>(word_of(0.5f + static_cast<float>(random % 3))),
              0,
              static_cast<double>(word_of(0.3f + 0.1f * static_cast<float>(random % 7))),
              static_cast<double>(word_of(0)),
              static_cast<double>(random),
              0};
}

// As a mask leaves them: of some tokens, of few, or of one, and mostly not of the likeliest. Top-k
// and top-p part what is left.
void make_masked(std::vector<double>& logits, std::vector<double>& settings, std::int64_t random) {
  const std::int64_t every = std::array{3, 61, 1 << 30}[static_cast<std::size_t>(random % 3)];
  const std::int64_t first = random / 3 % std::min<std::int64_t>(every, std::ssize(logits));
  for (std::int64_t i = 0; i < std::ssize(logits); ++i)
    if (i % every != first)
      logits[static_cast<std::size_t>(i)] = -std::numeric_limits<double>::infinity();
  settings[1] = static_cast<double>(random % 5 != 0 ? 2 + random % 40 : 0);
  settings[2] = word_of(random % 5 < 3 ? 0.9f : 1);
}

// What the choice before leaves as its token: the likeliest, or which logit is bad. That of a token
// that a mask leaves out is not.
std::int32_t choice_before(const std::vector<double>& logits) {
  const std::int32_t token = greedy_token(logits);
  if (token >= 0 || kernels::bad_logit(token) != kernels::BadLogit::minus_infinity) return token;
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

kernels::DrawSettings settings_of(const std::vector<double>& words) {
  std::int32_t bytes[kWords];
  for (std::size_t i = 0; i < kWords; ++i) bytes[i] = static_cast<std::int32_t>(words[i]);
  kernels::DrawSettings settings;
  std::memcpy(&settings, bytes, sizeof settings);
  return settings;
}

// That the launches keep the tokens that top-k and top-p do.
std::string check_limit(const std::vector<double>& logits, kernels::DrawSettings settings,
                        std::span<const std::byte> workspace) {
  if (settings.top_k == 0 && settings.top_p >= 1) return {};
  settings.min_p = 0;  // is no part of the limit
  const std::vector<bool> most = tokens_kept(logits, settings, kRounding),
                          least = tokens_kept(logits, settings, -kRounding);
  if (std::ranges::find(most, true) == most.end()) return {};  // no probabilities
  kernels::DrawState state;
  if (workspace.size() < sizeof state) return "it has no place for its state";
  std::memcpy(&state, workspace.data(), sizeof state);
  const double largest = *std::ranges::max_element(logits);
  constexpr double kGrid = kernels::draw_range / kernels::draw_keys;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double distance = (largest - logits[i]) / static_cast<double>(settings.temperature);
    const bool kept = distance < (static_cast<double>(state.limit) + 1) * kGrid;
    // Beyond the range, nothing is drawn, whatever the limit is.
    if (distance >= kernels::draw_range - kLastCell || (kept ? most[i] : !least[i])) continue;
    return fmt::format("top-k {} and top-p {} at the temperature {} {} the token {}",
                       settings.top_k, settings.top_p, settings.temperature,
                       kept ? "leave" : "drop", i);
  }
  return {};
}

}  // namespace

validate::Subject draw_subject(const Trial& trial) {
  validate::Subject subject;
  subject.tensors = {
      {.name = "logits", .dtype = trial.logits, .shape = {trial.vocab}},
      {.name = "token", .dtype = DType::i32, .shape = {1}, .role = validate::TensorRole::state},
      {.name = "position", .dtype = DType::i32, .shape = {1}, .high = 1 << 20},
      {.name = "settings", .dtype = DType::i32, .shape = {kWords}, .high = 1 << 20}};
  subject.constrain = [dtype = trial.logits](Elements& elements) {
    const auto random = static_cast<std::int64_t>(elements[kSettings].back());
    make_settings(elements[kSettings]);
    if (greedy_token(elements[kLogits]) >= 0) {  // all are finite
      if (random % 4 == 0)
        make_edge(dtype, elements[kLogits], elements[kSettings], random / 4);
      else if (random % 8 == 1)
        make_halves(dtype, elements[kLogits], elements[kSettings], random / 8);
      else if (random % 8 == 3)
        make_masked(elements[kLogits], elements[kSettings], random / 8);
    }
    elements[kToken] = {static_cast<double>(choice_before(elements[kLogits]))};
  };
  subject.truth = subject.plain = [tokens = trial.tokens](const Elements& in) {
    if (in[kToken][0] < 0) return Elements{{}, in[kToken]};
    const auto position = static_cast<std::int64_t>(in[kPosition][0]) + tokens;
    const std::int64_t token = draw_token(in[kLogits], settings_of(in[kSettings]), position);
    return Elements{{}, {static_cast<double>(token)}};
  };
  return subject;
}

std::string settle_draw(const validate::Subject& subject, const Trial& trial,
                        const validate::Buffers& buffers, std::span<const std::byte> workspace) {
  const auto elements = [&](Tensor t) {
    return validate::load_elements(subject.tensors[t], buffers[t]);
  };
  const std::vector<double> logits = elements(kLogits);
  if (choice_before(logits) < 0) return {};  // nothing is drawn
  const kernels::DrawSettings settings = settings_of(elements(kSettings));
  const std::int64_t position = static_cast<std::int64_t>(elements(kPosition)[0]) + trial.tokens;
  const auto got = static_cast<std::int64_t>(elements(kToken)[0]);
  if (const std::string error = check_limit(logits, settings, workspace); !error.empty())
    return error;
  if (!may_draw(logits, settings, position, got, kRounding)) return {};
  const auto token = static_cast<std::int32_t>(draw_token(logits, settings, position));
  std::memcpy(buffers[kToken].data(), &token, sizeof token);
  return {};
}

}  // namespace ac
