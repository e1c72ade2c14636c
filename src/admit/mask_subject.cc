#include "admit/mask_subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/mask_logits_plan.h"
#include "program/sampling.h"
#include "validate/buffers.h"

namespace ac {
namespace {

using validate::Elements;

enum MaskTensor : std::size_t { kGiven, kAllowed, kLeft };

constexpr double kNever = -std::numeric_limits<double>::infinity();

std::uint32_t bits_of(double word) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(word));
}
double word_of(std::uint32_t bits) { return static_cast<std::int32_t>(bits); }

bool is_allowed(const std::vector<double>& words, std::int64_t token) {
  return (bits_of(words[static_cast<std::size_t>(token / kernels::mask_word)]) >>
              (token % kernels::mask_word) &
          1) != 0;
}
void allow(std::vector<double>& words, std::int64_t token, bool yes) {
  double& word = words[static_cast<std::size_t>(token / kernels::mask_word)];
  const std::uint32_t bit = 1u << (token % kernels::mask_word);
  word = word_of(yes ? bits_of(word) | bit : bits_of(word) & ~bit);
}

// Random words become a mask as grammars make them: it allows half of the tokens, all, one, the
// last one, all but the likeliest, or few.
void make_mask(std::vector<double>& words, const std::vector<double>& logits) {
  const auto vocab = std::ssize(logits);
  const auto chance = static_cast<std::int64_t>(bits_of(words.back()) >> 3);
  const std::int64_t one = chance / 6 % vocab;
  switch (chance % 6) {
    case 0:
      break;
    case 1:
      std::ranges::fill(words, -1);
      break;
    case 2:
    case 3:
      std::ranges::fill(words, 0);
      allow(words, chance % 6 == 2 ? one : vocab - 1, true);
      break;
    case 4:
      std::ranges::fill(words, -1);
      if (const std::int32_t likeliest = greedy_token(logits); likeliest >= 0 && vocab > 1)
        allow(words, likeliest, false);
      break;
    default:
      for (double& word : words) word = word_of(bits_of(word) & bits_of(word) >> 7 & 0x11080421u);
  }
  for (std::int64_t token = 0; token < vocab; ++token)
    if (is_allowed(words, token)) return;
  allow(words, one, true);
}

}  // namespace

validate::Subject mask_subject(const Trial& trial) {
  validate::Subject subject;
  const std::int64_t words = kernels::mask_words(static_cast<int>(trial.vocab));
  subject.tensors = {
      {.name = "logits", .dtype = trial.logits, .shape = {trial.vocab}},
      {.name = "allowed",
       .dtype = DType::i32,
       .shape = {words},
       .low = std::numeric_limits<std::int32_t>::min(),
       .high = std::numeric_limits<std::int32_t>::max()},
      {.name = "masked",
       .dtype = trial.logits,
       .shape = {trial.vocab},
       .role = validate::TensorRole::output},
      {.name = "token", .dtype = DType::i32, .shape = {1}, .role = validate::TensorRole::output}};
  subject.constrain = [](Elements& in) { make_mask(in[kAllowed], in[kGiven]); };
  subject.truth = subject.plain = [](const Elements& in) {
    std::vector<double> masked = in[kGiven];
    std::int64_t best = -1;
    for (std::int64_t token = 0; token < std::ssize(masked); ++token) {
      double& logit = masked[static_cast<std::size_t>(token)];
      if (!is_allowed(in[kAllowed], token))
        logit = kNever;
      else if (best < 0 || logit > masked[static_cast<std::size_t>(best)])
        best = token;
    }
    // A damaged logit is named even where its token is not allowed.
    if (const std::int32_t bad = greedy_token(in[kGiven]); bad < 0) best = bad;
    return Elements{{}, {}, masked, {static_cast<double>(best)}};
  };
  return subject;
}

std::string check_masked(const validate::Subject& subject, const validate::Buffers& buffers) {
  const std::vector<double> words =
      validate::load_elements(subject.tensors[kAllowed], buffers[kAllowed]);
  const std::vector<double> logits =
      validate::load_elements(subject.tensors[kGiven], buffers[kGiven]);
  const DType dtype = subject.tensors[kGiven].dtype;
  const std::size_t size = bytes_of(dtype);
  std::array<std::byte, 4> never{};
  store_element(dtype, kNever, never.data());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool may_be = is_allowed(words, static_cast<std::int64_t>(i));
    if (may_be && std::isnan(logits[i])) continue;  // of any bits
    const std::byte* const wanted = may_be ? &buffers[kGiven][i * size] : never.data();
    if (std::memcmp(&buffers[kLeft][i * size], wanted, size) != 0)
      return fmt::format("it leaves another logit of the token {}, which is {}allowed", i,
                         may_be ? "" : "not ");
  }
  return {};
}

}  // namespace ac
