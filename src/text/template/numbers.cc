#include "text/template/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/template/characters.h"

namespace ac::jinja {
namespace {

// Without underscores, which may stand between two digits only.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const auto alphanumeric = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !alphanumeric(i - 1) || !alphanumeric(i + 1)) return std::nullopt;
  }
  return plain;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip(text, nullptr, true, true);
  const bool minus = text.starts_with('-');
  if (minus || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(2);
      if (text.starts_with('_')) text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  const std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty() || (*plain)[0] == '-') return std::nullopt;
  std::int64_t value = 0;
  const std::string digits = (minus ? "-" : "") + *plain;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) fail("an integer does not fit into 64 bits");
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<double> to_real(const Value& value) {
  if (value.is_number()) return value.real();
  if (value.as_string() == nullptr) return std::nullopt;
  const std::string_view stripped = strip(value.as_string()->text, nullptr, true, true);
  const std::optional<std::string> text = without_underscores(stripped);
  if (!text || text->empty()) return std::nullopt;
  std::string name = to_lower(*text);
  if (name[0] == '+' || name[0] == '-') name.erase(0, 1);
  // strtod also reads hexadecimal numbers and nan(...), which Python does not.
  if (name != "inf" && name != "infinity" && name != "nan" &&
      name.find_first_not_of("0123456789.e+-") != std::string::npos)
    return std::nullopt;
  char* end = nullptr;
  const double parsed = std::strtod(text->c_str(), &end);
  if (end != text->c_str() + text->size()) return std::nullopt;
  return parsed;
}

Value rounded(const Value& value, std::int64_t precision) {
  if (value.is_integer() && precision >= 0) return Value(value.integer());
  if (precision > 300) return value;
  if (precision < -300) return value.is_integer() ? Value(0) : Value(0.0);
  if (value.is_integer()) {
    if (precision < -18) return Value(0);
    std::int64_t unit = 1;
    for (; precision < 0; ++precision) unit *= 10;
    const std::int64_t rest = value.integer() % unit, whole = value.integer() - rest;
    const std::int64_t twice = std::abs(rest) - (unit - std::abs(rest));  // against the half
    const bool up = twice > 0 || (twice == 0 && (whole / unit) % 2 != 0);
    std::int64_t result = whole;
    if (up && __builtin_add_overflow(whole, rest < 0 ? -unit : unit, &result))
      fail("an integer does not fit into 64 bits");
    return Value(result);
  }
  const double real = value.real();
  if (!std::isfinite(real)) return value;
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value(std::nearbyint(real / unit) * unit);
  }
  return Value(std::strtod(fmt::format("{:.{}f}", real, precision).c_str(), nullptr));
}

}  // namespace ac::jinja
