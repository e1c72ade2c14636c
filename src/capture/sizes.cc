#include "capture/sizes.h"

#include <limits>
#include <optional>
#include <string>

#include "base/error.h"

namespace ac {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0 || (a == std::numeric_limits<std::int64_t>::min() && b == -1))
    bad_input("the size {} is divided by {}", a, b);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Dim floor_divide(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return floor_divide(a.constant(), b.constant());
  const std::optional<Dim> quotient = a.divided_by(b);
  if (!quotient) bad_input("the size ({}) // ({}) does not divide exactly", a.str(), b.str());
  return *quotient;
}

Dim smaller(const Dim& a, const Dim& b, const SymbolRange& range) {
  if (at_most(a, b, range)) return a;
  if (at_most(b, a, range)) return b;
  bad_input("cannot tell which of the sizes {} and {} is smaller", a.str(), b.str());
}

Dim apply(const std::string& op, const Dim& a, const Dim& b, const SymbolRange& range) {
  if (op == "add") return a + b;
  if (op == "mul") return a * b;
  if (op == "floordiv") return floor_divide(a, b);
  if (op == "mod") return a - floor_divide(a, b) * b;
  if (op == "min") return smaller(a, b, range);
  if (op == "max") return a + b - smaller(a, b, range);
  bad_input("\"{}\" is not an operation on sizes", op);
}

}  // namespace

Dim read_size(const Json& expression, const SymbolRange& range) {
  if (expression.is_number_integer()) {
    if (expression.is_number_unsigned() &&
        expression.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      bad_input("the size {} overflows 64 bits", expression.dump());
    return expression.get<std::int64_t>();
  }
  if (expression == "S") return Symbol::S;
  if (!expression.is_array() || expression.size() < 3 || !expression[0].is_string())
    bad_input("{} is not a size: expected an integer, \"S\" or [op, a, b]",
              expression.dump().substr(0, 100));
  const auto& op = expression[0].get_ref<const std::string&>();
  if (expression.size() > 3 && op != "add" && op != "mul")
    bad_input("the size operation {} takes two operands, not {}", op, expression.size() - 1);
  Dim result = read_size(expression[1], range);
  for (std::size_t i = 2; i < expression.size(); ++i)
    result = apply(op, result, read_size(expression[i], range), range);
  return result;
}

bool at_most(const Dim& a, const Dim& b, const SymbolRange& range) {
  const Dim rest = b - a;
  if (rest.is_constant()) return rest.constant() >= 0;
  // The slope has a lower degree, so this ends. A rest that only grows is least at the lower end.
  const Dim slope = rest.substitute(Symbol::S, Dim(Symbol::S) + 1) - rest;
  if (at_most(0, slope, range)) return rest.evaluate({.S = range.min}) >= 0;
  if (at_most(slope, 0, range)) return rest.evaluate({.S = range.max}) >= 0;
  return false;
}

}  // namespace ac
