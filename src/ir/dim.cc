#include "ir/dim.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace ac {
namespace {

constexpr std::string_view kLetters = "STP";

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) bad_input("a size overflows 64 bits");
  return sum;
}

std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) bad_input("a size overflows 64 bits");
  return result;
}

}  // namespace

Dim::Dim(std::int64_t value) {
  if (value != 0) terms_.push_back({{}, value});
}

Dim::Dim(Symbol symbol) {
  Term term{{}, 1};
  term.powers[static_cast<std::size_t>(symbol)] = 1;
  terms_.push_back(term);
}

bool Dim::is_constant() const {
  return terms_.empty() || (terms_.size() == 1 && terms_[0].powers == Term{}.powers);
}

std::int64_t Dim::constant() const {
  AC_ASSERT(is_constant());
  return terms_.empty() ? 0 : terms_[0].coefficient;
}

bool Dim::uses(Symbol symbol) const {
  return std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    return term.powers[static_cast<std::size_t>(symbol)] > 0;
  });
}

void Dim::add_term(const Term& term) {
  auto at = std::find_if(terms_.begin(), terms_.end(),
                         [&](const Term& other) { return other.powers <= term.powers; });
  if (at == terms_.end() || at->powers != term.powers) {
    if (term.coefficient != 0) terms_.insert(at, term);
    return;
  }
  at->coefficient = checked_add(at->coefficient, term.coefficient);
  if (at->coefficient == 0) terms_.erase(at);
}

Dim Dim::operator+(const Dim& other) const {
  Dim sum = *this;
  for (const Term& term : other.terms_) sum.add_term(term);
  return sum;
}

Dim Dim::operator-(const Dim& other) const { return *this + other * Dim(-1); }

Dim Dim::operator*(const Dim& other) const {
  Dim result;
  for (const Term& a : terms_) {
    for (const Term& b : other.terms_) {
      Term term{{}, checked_mul(a.coefficient, b.coefficient)};
      for (std::size_t i = 0; i < kSymbols; ++i) {
        const int power = a.powers[i] + b.powers[i];
        if (power > 8) bad_input("a size has a symbol to the power of {}", power);
        term.powers[i] = static_cast<std::uint8_t>(power);
      }
      result.add_term(term);
    }
  }
  return result;
}

std::optional<Dim> Dim::divided_by(const Dim& divisor) const {
  if (divisor.terms_.empty()) return std::nullopt;
  // Long division by the leading term; exact or nothing.
  Dim rest = *this;
  Dim quotient;
  while (!rest.terms_.empty()) {
    const Term& top = rest.terms_[0];
    const Term& lead = divisor.terms_[0];
    if (lead.coefficient == -1 && top.coefficient == INT64_MIN) return std::nullopt;
    if (top.coefficient % lead.coefficient != 0) return std::nullopt;
    Term term{{}, top.coefficient / lead.coefficient};
    for (std::size_t i = 0; i < kSymbols; ++i) {
      if (top.powers[i] < lead.powers[i]) return std::nullopt;
      term.powers[i] = static_cast<std::uint8_t>(top.powers[i] - lead.powers[i]);
    }
    Dim factor;
    factor.add_term(term);
    quotient = quotient + factor;
    rest = rest - factor * divisor;
  }
  return quotient;
}

Dim Dim::substitute(Symbol symbol, const Dim& value) const {
  const auto index = static_cast<std::size_t>(symbol);
  Dim result;
  for (const Term& term : terms_) {
    Term rest = term;
    rest.powers[index] = 0;
    Dim expanded;
    expanded.add_term(rest);
    for (int i = 0; i < term.powers[index]; ++i) expanded = expanded * value;
    result = result + expanded;
  }
  return result;
}

std::int64_t Dim::evaluate(const Bindings& bindings) const {
  const std::array<std::int64_t, kSymbols> values{bindings.S, bindings.T, bindings.P};
  std::int64_t sum = 0;
  for (const Term& term : terms_) {
    std::int64_t part = term.coefficient;
    for (std::size_t i = 0; i < kSymbols; ++i) {
      AC_ASSERT(term.powers[i] == 0 || values[i] >= 0);
      for (int n = 0; n < term.powers[i]; ++n) part = checked_mul(part, values[i]);
    }
    sum = checked_add(sum, part);
  }
  return sum;
}

std::string Dim::str() const {
  if (terms_.empty()) return "0";
  std::string text;
  for (const Term& term : terms_) {
    std::string factors;
    for (std::size_t i = 0; i < kSymbols; ++i)
      for (int n = 0; n < term.powers[i]; ++n) {
        if (!factors.empty()) factors += '*';
        factors += kLetters[i];
      }
    const bool first = text.empty();
    const bool negative = term.coefficient < 0;
    // Negating the smallest integer overflows; it prints as itself in the first place only.
    const auto magnitude = negative ? 0 - static_cast<std::uint64_t>(term.coefficient)
                                    : static_cast<std::uint64_t>(term.coefficient);
    text += first ? (negative ? "-" : "") : (negative ? " - " : " + ");
    if (factors.empty())
      text += fmt::format("{}", magnitude);
    else if (magnitude == 1)
      text += factors;
    else
      text += fmt::format("{}*{}", magnitude, factors);
  }
  return text;
}

std::optional<Dim> Dim::parse(std::string_view text) {
  std::size_t at = 0;
  auto skip_space = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  auto factor = [&]() -> std::optional<Dim> {
    skip_space();
    if (at == text.size()) return std::nullopt;
    if (const auto letter = kLetters.find(text[at]); letter != kLetters.npos) {
      ++at;
      return Dim(static_cast<Symbol>(letter));
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    at = static_cast<std::size_t>(end - text.data());
    return Dim(value);
  };
  Dim sum;
  bool first = true;
  while (true) {
    skip_space();
    bool negative = false;
    if (at < text.size() && (text[at] == '-' || (!first && text[at] == '+')))
      negative = text[at++] == '-';
    else if (!first)
      return std::nullopt;
    std::optional<Dim> term = factor();
    if (!term) return std::nullopt;
    skip_space();
    while (at < text.size() && text[at] == '*') {
      ++at;
      const std::optional<Dim> next = factor();
      if (!next) return std::nullopt;
      term = *term * *next;
      skip_space();
    }
    sum = negative ? sum - *term : sum + *term;
    first = false;
    if (at == text.size()) return sum;
  }
}

Dim product(const Shape& shape) {
  Dim result(1);
  for (const Dim& dim : shape) result = result * dim;
  return result;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const Dim& dim : shape) {
    if (text.size() > 1) text += ", ";
    text += dim.str();
  }
  return text + "]";
}

}  // namespace ac
