#include "text/template/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/template/characters.h"
#include "text/template/operators.h"

namespace ac::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 1000;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 26;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > = ^
  char sign = '-';
  bool alternate = false, zero = false;
  char grouping = '\0';
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = '\0';
};

std::string padded(const Spec& spec, char align, std::string_view prefix, std::string_view text) {
  const auto size = static_cast<std::int64_t>(prefix.size() + count_characters(text));
  if (spec.width > kMaxWidth) fail("a width of {} is too large", spec.width);
  std::int64_t missing = std::max<std::int64_t>(spec.width - size, 0);
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  TextBuilder out;
  if (align == '=') out += prefix;
  for (std::int64_t i = 0; i < left; ++i) out += spec.fill;
  if (align != '=') out += prefix;
  out += text;
  for (missing -= left; missing > 0; --missing) out += spec.fill;
  return out.take();
}

std::string grouped(const std::string& digits, char separator) {
  if (separator == '\0') return digits;
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string result;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) result += separator;
    result += digits[i];
  }
  return result + digits.substr(whole);
}

std::string with_sign(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string finished(const Spec& spec, std::string prefix, const std::string& digits) {
  Spec filled = spec;
  if (spec.zero && spec.align == '\0') {
    filled.fill = "0";
    filled.align = '=';
  }
  return padded(filled, filled.align == '\0' ? '>' : filled.align, prefix, digits);
}

std::string format_integer(const Spec& spec, std::int64_t value, bool printf) {
  const std::uint64_t size =
      value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  std::string digits, mark;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", size), mark = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", size), mark = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", size), mark = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", size), mark = "0b";
      break;
    default:
      digits = fmt::format("{}", size);
  }
  if (printf && spec.precision) {
    if (*spec.precision > kMaxPrecision) fail("a precision of {} is too large", *spec.precision);
    const auto wanted = static_cast<std::size_t>(*spec.precision);
    if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
  }
  std::string prefix = with_sign(spec, value < 0);
  if (spec.alternate) prefix += mark;
  return finished(spec, prefix, grouped(digits, spec.grouping));
}

std::string format_real(const Spec& spec, double value) {
  const std::int64_t precision = spec.precision.value_or(6);
  if (precision > kMaxPrecision) fail("a precision of {} is too large", precision);
  const double size = std::fabs(value);
  std::string digits;
  const char type = spec.type;
  if (!std::isfinite(size)) {
    digits = std::isnan(size) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') digits = to_upper(digits);
    if (type == '%') digits += '%';
  } else if (type == '\0' && !spec.precision) {
    digits = real_text(size);
  } else {
    switch (type) {
      case 'e':
        digits = fmt::format("{:.{}e}", size, precision);
        break;
      case 'E':
        digits = fmt::format("{:.{}E}", size, precision);
        break;
      case 'f':
      case 'F':
        digits = fmt::format("{:.{}f}", size, precision);
        break;
      case '%':
        digits = fmt::format("{:.{}f}%", size * 100, precision);
        break;
      case 'G':
        digits = fmt::format("{:.{}G}", size, std::max<std::int64_t>(precision, 1));
        break;
      default:
        digits = fmt::format("{:.{}g}", size, std::max<std::int64_t>(precision, 1));
    }
    if (type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  }
  return finished(spec, with_sign(spec, std::signbit(value) && !std::isnan(value)),
                  grouped(digits, spec.grouping));
}

std::string cut(const std::string& text, const std::optional<std::int64_t>& precision) {
  if (!precision) return text;
  return text.substr(0, byte_of_character(text, static_cast<std::size_t>(*precision)));
}

std::int64_t number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail("a width or precision is too large");
  at = static_cast<std::size_t>(end - text.data());
  return value;
}

bool digit_at(std::string_view text, std::size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

// --- %

class Printf {
 public:
  Printf(std::string_view format, const Value& values) : format_(format), values_(values) {
    if (const List* list = values.as_sequence(); list != nullptr && list->is_tuple())
      several_ = list;
  }

  std::string run() {
    TextBuilder out;
    while (at_ < format_.size()) {
      const std::size_t percent = format_.find('%', at_);
      if (percent == std::string_view::npos) {
        out += format_.substr(at_);
        break;
      }
      out += format_.substr(at_, percent - at_);
      at_ = percent + 1;
      out += conversion();
    }
    const bool mapping =
        values_.as_dict() != nullptr || (values_.as_sequence() != nullptr && several_ == nullptr);
    if (!mapping && taken_ < (several_ != nullptr ? several_->items.size() : 1))
      fail("not all arguments converted during string formatting");
    return out.take();
  }

 private:
  Value take() {
    if (several_ == nullptr && taken_++ == 0) return values_;
    if (several_ == nullptr || taken_ >= several_->items.size())
      fail("not enough arguments for format string");
    return several_->items[taken_++];
  }

  std::int64_t star() {
    const Value value = take();
    if (!value.is_integer()) fail("* wants int");
    return value.integer();
  }

  std::string conversion() {
    Value value;
    if (at_ < format_.size() && format_[at_] == '(') {
      const std::size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (values_.as_dict() == nullptr) fail("format requires a mapping");
      const std::string key(format_.substr(at_ + 1, close - at_ - 1));
      const Value* found = values_.as_dict()->find(std::string_view(key));
      if (found == nullptr) fail("{}", repr_text(key));
      value = *found;
      at_ = close + 1;
    }
    Spec spec;
    for (; at_ < format_.size(); ++at_) {
      const char flag = format_[at_];
      if (flag == '-')
        spec.align = '<';
      else if (flag == '+' || (flag == ' ' && spec.sign != '+'))
        spec.sign = flag;
      else if (flag == '0')
        spec.zero = true;
      else if (flag == '#')
        spec.alternate = true;
      else if (flag != ' ')
        break;
    }
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      spec.width = star();
      if (spec.width < 0) spec.align = '<';
      spec.width = std::min(std::abs(std::max(spec.width, -kMaxWidth)), kMaxWidth + 1);
    } else if (digit_at(format_, at_)) {
      spec.width = number(format_, at_);
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = 0;
      if (at_ < format_.size() && format_[at_] == '*') {
        ++at_;
        spec.precision = std::max<std::int64_t>(star(), 0);
      } else if (digit_at(format_, at_)) {
        spec.precision = number(format_, at_);
      }
    }
    while (at_ < format_.size() && std::string_view("hlL").find(format_[at_]) != std::string::npos)
      ++at_;
    if (at_ >= format_.size()) fail("incomplete format");
    spec.type = format_[at_++];
    if (spec.type == '%') return "%";
    return formatted(spec, value.is_missing() ? take() : value);
  }

  static std::string text(Spec spec, const std::string& text) {
    spec.fill = " ";
    return padded(spec, spec.align == '<' ? '<' : '>', "", cut(text, spec.precision));
  }

  static std::string formatted(Spec spec, const Value& value) {
    const char type = spec.type;
    switch (type) {
      case 's':
        return text(spec, to_text(value));
      case 'r':
      case 'a':
        return text(spec, repr(value));
      case 'c': {
        spec.precision.reset();
        if (value.as_string() != nullptr && value.as_string()->length == 1)
          return text(spec, value.as_string()->text);
        if (!value.is_integer() || value.integer() < 0 || value.integer() > 0x10ffff)
          fail("%c requires int or char");
        std::string character;
        append_character(character, static_cast<char32_t>(value.integer()));
        return text(spec, character);
      }
      case 'd':
      case 'i':
      case 'u':
        if (!value.is_number())
          fail("%{} format: a real number is required, not {}", type, type_name(value));
        if (!value.is_integer() && !(std::fabs(value.real()) < 9e18))
          fail("%{} format: the number is too large", type);
        return format_integer(
            spec, value.is_integer() ? value.integer() : static_cast<std::int64_t>(value.real()),
            true);
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integer())
          fail("%{} format: an integer is required, not {}", type, type_name(value));
        return format_integer(spec, value.integer(), true);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) fail("must be real number, not {}", type_name(value));
        return format_real(spec, value.real());
      default:
        fail("unsupported format character '{}'", type);
    }
  }

  const std::string_view format_;
  const Value& values_;
  const List* several_ = nullptr;
  std::size_t at_ = 0, taken_ = 0;
};

// --- {}

class Braces {
 public:
  explicit Braces(const Arguments& arguments) : arguments_(arguments) {}

  std::string run(std::string_view format, int depth) {
    if (depth < 0) fail("Max string recursion exceeded");
    TextBuilder out;
    for (std::size_t at = 0; at < format.size();) {
      const char character = format[at];
      if (character != '{' && character != '}') {
        const std::size_t next = std::min(format.find_first_of("{}", at), format.size());
        out += format.substr(at, next - at);
        at = next;
      } else if (at + 1 < format.size() && format[at + 1] == character) {
        out += character;
        at += 2;
      } else if (character == '}') {
        fail("Single '}}' encountered in format string");
      } else {
        const std::size_t close = closing(format, at);
        out += field(format.substr(at + 1, close - at - 1), depth);
        at = close + 1;
      }
    }
    return out.take();
  }

 private:
  static std::size_t closing(std::string_view format, std::size_t at) {
    int open = 0;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    fail("expected '}}' before end of string");
  }

  std::string field(std::string_view field, int depth) {
    std::size_t end = 0;
    while (end < field.size() && field[end] != '!' && field[end] != ':') {
      if (field[end] == '[') end = std::min(field.find(']', end), field.size() - 1);
      ++end;
    }
    Value value = lookup(field.substr(0, end));
    if (end < field.size() && field[end] == '!') {
      if (end + 1 >= field.size()) fail("end of string while looking for conversion specifier");
      const char conversion = field[end + 1];
      if (conversion == 's')
        value = Value(to_text(value));
      else if (conversion == 'r' || conversion == 'a')
        value = Value(repr(value));
      else
        fail("Unknown conversion specifier {}", conversion);
      end += 2;
      if (end < field.size() && field[end] != ':') fail("expected ':' after conversion specifier");
    }
    return formatted(value, end < field.size() ? run(field.substr(end + 1), depth - 1) : "");
  }

  Value lookup(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    for (std::size_t at = end; at < name.size();) {
      if (name[at] == '.') {
        const std::size_t next = std::min(name.find_first_of(".[", at + 1), name.size());
        value = attribute_of(value, name.substr(at + 1, next - at - 1));
        at = next;
      } else if (name[at] == '[') {
        const std::size_t close = name.find(']', at);
        if (close == std::string_view::npos) fail("Missing ']' in format string");
        const std::string_view index = name.substr(at + 1, close - at - 1);
        value = item_of(value, is_number(index) ? Value(to_number(index)) : Value(index));
        at = close + 1;
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  static std::int64_t to_number(std::string_view text) {
    std::size_t at = 0;
    return number(text, at);
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      if (name.empty() ? numbered_ : automatic_ > 0)
        fail("cannot switch between manual field specification and automatic field numbering");
      numbered_ |= !name.empty();
      const auto index = name.empty() ? automatic_++ : static_cast<std::size_t>(to_number(name));
      if (index >= arguments_.positional.size())
        fail("Replacement index {} out of range for positional args tuple", index);
      return arguments_.positional[index];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    fail("{}", repr_text(name));
  }

  static Spec parse(std::string_view text) {
    Spec spec;
    std::size_t at = 0;
    constexpr std::string_view kAligns = "<>=^";
    if (!text.empty()) {
      std::size_t next = 0;
      next_character(text, next);
      if (next < text.size() && kAligns.find(text[next]) != std::string_view::npos) {
        spec.fill = std::string(text.substr(0, next));
        spec.align = text[next];
        at = next + 1;
      } else if (kAligns.find(text[0]) != std::string_view::npos) {
        spec.align = text[0];
        at = 1;
      }
    }
    const auto is = [&](char wanted) { return at < text.size() && text[at] == wanted; };
    if (is('+') || is('-') || is(' ')) spec.sign = text[at++];
    if (is('#')) spec.alternate = true, ++at;
    if (is('0')) spec.zero = true, ++at;
    if (digit_at(text, at)) spec.width = number(text, at);
    if (is(',') || is('_')) spec.grouping = text[at++];
    if (is('.')) {
      if (!digit_at(text, ++at)) fail("Format specifier missing precision");
      spec.precision = number(text, at);
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) fail("Invalid format specifier {}", repr_text(text));
    return spec;
  }

  static std::string formatted(const Value& value, std::string_view text) {
    if (text.empty()) return to_text(value);
    const Spec spec = parse(text);
    if (const String* string = value.as_string()) {
      if (spec.type != '\0' && spec.type != 's')
        fail("Unknown format code '{}' for object of type 'str'", spec.type);
      Spec filled = spec;
      if (spec.zero && spec.align == '\0') filled.fill = "0";
      if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
      return padded(filled, spec.align == '\0' ? '<' : spec.align, "",
                    cut(string->text, spec.precision));
    }
    constexpr std::string_view kReal = "eEfFgG%", kInteger = "dxXobn";
    if (value.is_number() && kReal.find(spec.type) != std::string_view::npos && spec.type != '\0')
      return format_real(spec, value.real());
    if (value.is_integer() &&
        (spec.type == '\0' || kInteger.find(spec.type) != std::string_view::npos)) {
      if (spec.precision) fail("Precision not allowed in integer format specifier");
      return format_integer(spec, value.integer(), false);
    }
    if (value.is_number() && spec.type == '\0') return format_real(spec, value.real());
    if (value.is_number())
      fail("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
    fail("unsupported format string passed to {}.__format__", type_name(value));
  }

  const Arguments& arguments_;
  std::size_t automatic_ = 0;
  bool numbered_ = false;
};

}  // namespace

std::string printf_style(std::string_view format, const Value& values) {
  return Printf(format, values).run();
}

std::string brace_style(std::string_view format, const Arguments& arguments) {
  return Braces(arguments).run(format, 1);
}

}  // namespace ac::jinja
