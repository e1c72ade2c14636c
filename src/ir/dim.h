// Sizes of tensors: polynomials with integer coefficients over the symbols S (tokens of a whole
// forward), T (new tokens of a step) and P (cached tokens before them). A Dim is kept in one
// canonical form, so that equal sizes compare equal.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ac {

enum class Symbol : std::uint8_t { S, T, P };
inline constexpr std::size_t kSymbols = 3;

// The value of each symbol in one run; a symbol that a graph uses must be set.
struct Bindings {
  std::int64_t S = -1, T = -1, P = -1;
};

class Dim {
 public:
  Dim() = default;
  Dim(std::int64_t value);  // NOLINT: sizes are mostly plain integers
  Dim(Symbol symbol);       // NOLINT

  bool is_constant() const;
  std::int64_t constant() const;  // asserts is_constant()
  bool uses(Symbol symbol) const;

  // All of these are errors (bad_input) when a coefficient overflows 64 bits.
  Dim operator+(const Dim& other) const;
  Dim operator-(const Dim& other) const;
  Dim operator*(const Dim& other) const;
  // The exact quotient, or nothing: (2*S) / S is 2, S / 2 is not a Dim.
  std::optional<Dim> divided_by(const Dim& divisor) const;
  Dim substitute(Symbol symbol, const Dim& value) const;
  std::int64_t evaluate(const Bindings& bindings) const;

  std::string str() const;                                 // "2*S + 1"
  static std::optional<Dim> parse(std::string_view text);  // the inverse of str()

  bool operator==(const Dim&) const = default;

 private:
  struct Term {
    std::array<std::uint8_t, kSymbols> powers{};
    std::int64_t coefficient = 0;
    bool operator==(const Term&) const = default;
  };
  void add_term(const Term& term);

  std::vector<Term> terms_;  // sorted by powers, largest first; no zero coefficients
};

using Shape = std::vector<Dim>;

Dim product(const Shape& shape);
std::string to_string(const Shape& shape);  // "[S, 64]"

}  // namespace ac
