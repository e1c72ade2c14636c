#include "grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "grammar/compiled.h"

namespace ac::grammar {
namespace {

using Clock = std::chrono::steady_clock;

// A grammar may be so ambiguous that each token takes longer than the one before.
constexpr std::chrono::duration<double> kAtFirst{2}, kEachToken{0.02};
// More tokens than these are no beginnings of one another.
constexpr std::size_t kMostBeginnings = 64;

class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::duration<double>& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += Clock::now() - begin_; }

 private:
  std::chrono::duration<double>& sum_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

struct Matcher::Impl {
  const Rules rules;
  const xgrammar::TokenizerInfo tokens;
  xgrammar::GrammarMatcher library;
  enum class At {
    text,      // free, up to the trigger
    may_open,  // the beginning: reasoning, or at once the grammar
    reasoning,
    grammar,
  } at;
  std::vector<std::int32_t> mask;  // a bit a token, where it is known
  bool has_mask = false;
  std::chrono::duration<double> spent{0};
  std::int64_t taken = 0;

  explicit Impl(const Rules& given)
      : rules(given),
        tokens(rules.grammar->grammar.GetTokenizerInfo()),
        library(rules.grammar->grammar),
        at(begin()),
        mask(static_cast<std::size_t>(xgrammar::GetBitmaskSize(tokens.GetVocabSize()))) {}

  At begin() const {
    if (rules.reasoning == Rules::Reasoning::opened) return At::reasoning;
    if (has_trigger()) return At::text;
    return rules.reasoning == Rules::Reasoning::none ? At::grammar : At::may_open;
  }
  bool has_trigger() const { return rules.trigger >= 0; }

  const std::string& bytes(std::int64_t token) const {
    return tokens.GetDecodedVocab()[static_cast<std::size_t>(token)];
  }
  bool is_stop(std::int64_t token) const {
    return std::ranges::find(tokens.GetStopTokenIds(), token) != tokens.GetStopTokenIds().end();
  }
  std::uint32_t word(std::size_t i) const { return static_cast<std::uint32_t>(mask[i]); }
  bool allows(std::int64_t token) const {
    return token < tokens.GetVocabSize() &&
           (word(static_cast<std::size_t>(token) / 32) >> (token % 32) & 1) != 0;
  }
  void allow(std::int64_t token, bool yes) {
    auto bits = word(static_cast<std::size_t>(token) / 32);
    const auto bit = 1u << (token % 32);
    mask[static_cast<std::size_t>(token) / 32] =
        static_cast<std::int32_t>(yes ? bits | bit : bits & ~bit);
  }

  void find_mask() {
    if (has_mask) return;
    has_mask = true;
    if (at == At::reasoning || at == At::text) {
      std::ranges::fill(mask, -1);
      if (!has_trigger())
        for (const std::int32_t stop : tokens.GetStopTokenIds()) allow(stop, false);
      return;
    }
    const Stopwatch stopwatch(spent);
    auto size = static_cast<std::int64_t>(mask.size());
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    if (!library.FillNextTokenBitmask(&tensor)) std::ranges::fill(mask, -1);
    if (at == At::may_open) allow(rules.opens, true);
  }

  // At most one more than `most`.
  std::vector<std::int64_t> allowed(std::size_t most) {
    find_mask();
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < mask.size(); ++i)
      for (std::uint32_t bits = word(i); bits != 0 && ids.size() <= most; bits &= bits - 1)
        if (const auto id = static_cast<std::int64_t>(32 * i) + std::countr_zero(bits);
            id < tokens.GetVocabSize())
          ids.push_back(id);
    return ids;
  }

  void take(std::int64_t token) {
    has_mask = false;
    ++taken;
    const bool reasons = rules.reasoning != Rules::Reasoning::none;
    switch (at) {
      case At::text:
        if (token == rules.trigger) at = At::grammar;
        if (reasons && token == rules.opens) at = At::reasoning;
        return;
      case At::reasoning:
        if (token == rules.closes) at = has_trigger() ? At::text : At::grammar;
        return;
      case At::may_open:
        at = token == rules.opens ? At::reasoning : At::grammar;
        if (at == At::grammar) follow(token);
        return;
      case At::grammar:
        follow(token);
        if (has_trigger() && !is_stop(token) && is_over()) {
          library.Reset();
          has_mask = false;
          at = At::text;
        }
        return;
    }
  }
  void follow(std::int64_t token) {
    {
      const Stopwatch stopwatch(spent);
      if (!library.AcceptToken(static_cast<std::int32_t>(token)))
        job_failed("the grammar does not take the token {} that it has allowed", token);
    }
    if (spent > kAtFirst + static_cast<double>(taken) * kEachToken)
      bad_input("the grammar takes {:.1f} s for {} tokens: make it less ambiguous", spent.count(),
                taken);
  }

  // The one token that the others are beginnings of; -1: there is a choice.
  std::int64_t only() {
    if (at != At::grammar) return -1;
    const std::vector<std::int64_t> ids = allowed(kMostBeginnings);
    if (ids.empty() || ids.size() > kMostBeginnings) return -1;
    const std::int64_t longest = *std::ranges::max_element(
        ids, {}, [&](std::int64_t id) { return std::pair(bytes(id).size(), -id); });
    const auto begins = [&](std::int64_t id) {
      return !is_stop(id) && bytes(longest).starts_with(bytes(id));
    };
    return std::ranges::all_of(ids, begins) ? longest : -1;
  }

  bool ended() { return at == At::grammar && !library.IsTerminated() && is_over(); }
  // Nothing can follow.
  bool is_over() {
    const std::vector<std::int64_t> ids = allowed(tokens.GetStopTokenIds().size());
    const bool over = std::ranges::all_of(ids, [&](std::int64_t id) { return is_stop(id); });
    if (over && !library.IsCompleted())
      job_failed("no token of the model goes on as the grammar wants");
    return over;
  }

  // The same text in the tokens that the model knows it by.
  std::vector<std::int64_t> as_usual(const std::vector<std::int64_t>& ids, std::int64_t most) {
    std::string text;
    for (const std::int64_t id : ids) text += bytes(id);
    const std::vector<text::TokenId> usual = rules.grammar->tokenizer.encode(text);
    std::string same;
    for (const text::TokenId id : usual) same += id < tokens.GetVocabSize() ? bytes(id) : "";
    if (same != text || std::ssize(usual) > most) return ids;
    library.Rollback(static_cast<int>(ids.size()));
    taken -= std::ssize(ids);
    for (const text::TokenId id : usual) take(id);
    return {usual.begin(), usual.end()};
  }
};

Matcher::Matcher(const Rules& rules) : impl_(new Impl(rules)) {}
Matcher::~Matcher() = default;

std::vector<std::int64_t> Matcher::forced(std::int64_t most) {
  std::vector<std::int64_t> ids;
  while (std::ssize(ids) < most) {
    const std::int64_t id = impl_->only();
    if (id < 0) break;
    impl_->take(id);
    ids.push_back(id);
  }
  return !ids.empty() && impl_->at == Impl::At::grammar ? impl_->as_usual(ids, most) : ids;
}

bool Matcher::ended() { return impl_->ended(); }

std::vector<std::uint32_t> Matcher::allowed(std::int64_t vocabulary) {
  impl_->find_mask();
  std::vector<std::uint32_t> words((static_cast<std::size_t>(vocabulary) + 31) / 32);
  const std::int64_t known = std::min<std::int64_t>(impl_->tokens.GetVocabSize(), vocabulary);
  for (std::size_t i = 0; i < words.size() && i < impl_->mask.size(); ++i) {
    const std::int64_t left = known - static_cast<std::int64_t>(32 * i);
    if (left <= 0) break;
    words[i] = impl_->word(i) & (left < 32 ? (1u << left) - 1 : ~0u);
  }
  return words;
}

void Matcher::restrict(std::vector<double>& logits) {
  impl_->find_mask();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!impl_->allows(static_cast<std::int64_t>(i)))
      logits[i] = -std::numeric_limits<double>::infinity();
}

void Matcher::take(std::int64_t token) { impl_->take(token); }

}  // namespace ac::grammar
