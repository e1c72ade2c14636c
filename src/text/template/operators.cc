#include "text/template/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/template/builtins.h"
#include "text/template/characters.h"
#include "text/template/format.h"

namespace ac::jinja {
namespace {

[[noreturn]] void too_large() { fail("an integer does not fit into 64 bits"); }

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    if (a == std::numeric_limits<std::int64_t>::min()) too_large();
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value on_integers(std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (sign == "+") {
    if (__builtin_add_overflow(a, b, &result)) too_large();
    return Value(result);
  }
  if (sign == "-") {
    if (__builtin_sub_overflow(a, b, &result)) too_large();
    return Value(result);
  }
  if (sign == "*") {
    if (__builtin_mul_overflow(a, b, &result)) too_large();
    return Value(result);
  }
  if (sign == "**") {
    if (b >= 0) return Value(power(a, b));
    if (a == 0) fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (b == 0) fail("{}", sign == "/" ? "division by zero" : "integer division or modulo by zero");
  if (sign == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (sign == "//") return Value(floor_divide(a, b));
  return Value(b == -1 ? 0 : a - floor_divide(a, b) * b);
}

Value on_reals(std::string_view sign, double a, double b) {
  if (sign == "+") return Value(a + b);
  if (sign == "-") return Value(a - b);
  if (sign == "*") return Value(a * b);
  if (sign == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) fail("complex numbers are not supported");
    const double result = std::pow(a, b);
    if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("Result too large");
    return Value(result);
  }
  if (b == 0) fail("{}", sign == "/" ? "float division by zero" : "float floor division by zero");
  if (sign == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (sign == "%") return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient));
}

// A string or sequence `times` times.
Value repeated(const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  if (const String* string = value.as_string()) {
    TextBuilder out;
    if (!string->text.empty())
      for (; times > 0; --times) out += string->text;
    return Value(out.take(), string->markup);
  }
  const List& list = *value.as_sequence();
  std::vector<Value> items;
  const std::size_t count = list.items.size();
  if (count > 0 && static_cast<std::size_t>(times) > (std::size_t{1} << 26) / count)
    fail("a list of {} * {} items is too long", count, times);
  const Charge building(count * static_cast<std::size_t>(times) * sizeof(Value));
  for (; times > 0 && count > 0; --times)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return list.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value joined(const Value& a, const Value& b) {
  if (const String *left = a.as_string(), *right = b.as_string();
      left != nullptr && right != nullptr) {
    TextBuilder out;
    const bool markup = left->markup || right->markup;
    out += markup ? escaped(a).as_string()->text : left->text;
    out += markup ? escaped(b).as_string()->text : right->text;
    return Value(out.take(), markup);
  }
  const List *left = a.as_sequence(), *right = b.as_sequence();
  if (left != nullptr && right != nullptr && left->is_tuple() == right->is_tuple()) {
    std::vector<Value> items;
    const Charge building((left->items.size() + right->items.size()) * sizeof(Value));
    items.reserve(left->items.size() + right->items.size());
    items.insert(items.end(), left->items.begin(), left->items.end());
    items.insert(items.end(), right->items.begin(), right->items.end());
    return left->is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (left != nullptr || a.as_string() != nullptr)
    fail("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a));
  fail("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

void refuse_undefined(const Value& value) {
  if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
}

// The place of an index that may count from the end; -1 if there is none.
std::int64_t place(std::int64_t index, std::int64_t length) {
  if (index < 0) index += length;
  return index >= 0 && index < length ? index : -1;
}

Value character_at(const String& string, std::int64_t index) {
  if (string.ascii())
    return Value(std::string(1, string.text[static_cast<std::size_t>(index)]), string.markup);
  work(1 + string.text.size() / 64);
  std::size_t end = byte_of_character(string.text, static_cast<std::size_t>(index));
  const std::size_t begin = end;
  next_character(string.text, end);
  return Value(string.text.substr(begin, end - begin), string.markup);
}

// The item at an index, or a missing value.
Value plain_item(const Value& object, const Value& index) {
  if (const Dict* dict = object.as_dict()) {
    if (index.as_sequence() != nullptr && !index.as_sequence()->is_tuple()) return {};
    if (index.as_dict() != nullptr) return {};
    const Value* found = dict->find(index);
    return found != nullptr ? *found : Value();
  }
  if (!index.is_integer()) return {};
  const Range* range = object.as<Range>();
  if (object.as_string() == nullptr && object.as_sequence() == nullptr && range == nullptr)
    return {};
  const std::int64_t at = place(index.integer(), length(object));
  if (at < 0) return {};
  if (object.as_string() != nullptr) return character_at(*object.as_string(), at);
  if (range != nullptr) return range->at(at);
  return object.as_sequence()->items[static_cast<std::size_t>(at)];
}

struct Bounds {
  std::int64_t start, stop, step;
};

Bounds bounds(std::int64_t length, const Value& start, const Value& stop, const Value& step) {
  for (const Value* value : {&start, &stop, &step})
    if (!value->is_none() && !value->is_integer())
      fail("slice indices must be integers or None or have an __index__ method");
  Bounds result{0, 0, step.is_none() ? 1 : step.integer()};
  if (result.step == 0) fail("slice step cannot be zero");
  const bool down = result.step < 0;
  const std::int64_t lowest = down ? -1 : 0, highest = down ? length - 1 : length;
  const auto clamp = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const std::int64_t given = value.integer();
    return given < 0 ? std::max(given + length, lowest) : std::min(given, highest);
  };
  result.start = clamp(start, down ? highest : lowest);
  result.stop = clamp(stop, down ? lowest : highest);
  return result;
}

}  // namespace

Value arithmetic(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "%" && a.as_string() != nullptr)
    return Value(printf_style(a.as_string()->text, b), a.as_string()->markup);
  refuse_undefined(a);
  refuse_undefined(b);
  if (a.is_integer() && b.is_integer()) return on_integers(sign, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return on_reals(sign, a.real(), b.real());
  if (sign == "+") return joined(a, b);
  const auto repeatable = [](const Value& value) {
    return value.as_string() != nullptr || value.as_sequence() != nullptr;
  };
  if (sign == "*" && repeatable(a) && b.is_integer()) return repeated(a, b.integer());
  if (sign == "*" && repeatable(b) && a.is_integer()) return repeated(b, a.integer());
  fail("unsupported operand type(s) for {}: '{}' and '{}'", sign == "**" ? "** or pow()" : sign,
       type_name(a), type_name(b));
}

Value negated(const Value& value, bool minus) {
  refuse_undefined(value);
  if (value.is_integer())
    return minus ? on_integers("-", 0, value.integer()) : Value(value.integer());
  if (value.is_number()) return Value(minus ? -value.real() : value.real());
  fail("bad operand type for unary {}: '{}'", minus ? '-' : '+', type_name(value));
}

bool holds(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(a, b);
  if (sign == "!=") return !equal(a, b);
  if (sign == "in") return contains(b, a);
  if (sign == "not in") return !contains(b, a);
  if (a.is_number() && b.is_number() && (std::isnan(a.real()) || std::isnan(b.real())))
    return false;
  const int order = compare(a, b, std::string(sign).c_str());
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  if (sign == ">") return order > 0;
  return order >= 0;
}

Value attribute_of(const Value& object, std::string_view name) {
  refuse_undefined(object);
  if (Value found = method(object, name); !found.is_missing()) return found;
  if (const Dict* dict = object.as_dict())
    if (const Value* found = dict->find(name)) return *found;
  return Value::undefined(
      fmt::format("{} has no attribute {}", repr_text(described(object)), repr_text(name)));
}

Value item_of(const Value& object, const Value& index) {
  refuse_undefined(object);
  if (Value found = plain_item(object, index); !found.is_missing()) return found;
  const String* name = index.as_string();
  if (name == nullptr)
    return Value::undefined(fmt::format("{} has no element {}", described(object), repr(index)));
  if (Value found = method(object, name->text); !found.is_missing()) return found;
  return Value::undefined(
      fmt::format("{} has no attribute {}", repr_text(described(object)), repr_text(name->text)));
}

Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step) {
  refuse_undefined(object);
  if (object.as_dict() != nullptr) fail("unhashable type: 'slice'");
  const String* string = object.as_string();
  const List* list = object.as_sequence();
  const Range* range = object.as<Range>();
  if (string == nullptr && list == nullptr && range == nullptr)
    fail("'{}' object is not subscriptable", type_name(object));
  const auto [from, to, by] = bounds(length(object), start, stop, step);
  if (range != nullptr) {
    const std::int64_t most = range->length() + 1;
    return Value(std::shared_ptr<Object>(
        std::make_shared<Range>(range->start + from * range->step, range->start + to * range->step,
                                std::clamp(by, -most, most) * range->step)));
  }
  const auto past = [to = to, by = by](std::int64_t at) { return by > 0 ? at >= to : at <= to; };
  const auto jump = [by = by](std::int64_t at) {  // saturates
    std::int64_t next = 0;
    if (__builtin_add_overflow(at, by, &next))
      next = by > 0 ? std::numeric_limits<std::int64_t>::max()
                    : std::numeric_limits<std::int64_t>::min();
    return next;
  };
  if (list != nullptr) {
    std::vector<Value> items;
    for (std::int64_t at = from; !past(at); at = jump(at))
      items.push_back(list->items[static_cast<std::size_t>(at)]);
    return list->is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (past(from)) return Value(std::string(), string->markup);
  if (by == 1) {
    const std::size_t begin = string->ascii()
                                  ? static_cast<std::size_t>(from)
                                  : byte_of_character(string->text, static_cast<std::size_t>(from));
    const std::string_view rest = std::string_view(string->text).substr(begin);
    const auto count = static_cast<std::size_t>(to - from);
    return Value(
        std::string(rest.substr(0, string->ascii() ? count : byte_of_character(rest, count))),
        string->markup);
  }
  std::vector<std::size_t> begins;  // of characters
  const Charge building((string->length + 1) * sizeof(std::size_t));
  for (std::size_t at = 0; at < string->text.size(); next_character(string->text, at))
    begins.push_back(at);
  begins.push_back(string->text.size());
  TextBuilder out;
  for (std::int64_t at = from; !past(at); at = jump(at)) {
    const auto i = static_cast<std::size_t>(at);
    out += std::string_view(string->text).substr(begins[i], begins[i + 1] - begins[i]);
  }
  return Value(out.take(), string->markup);
}

Value escaped(const Value& value) {
  const String* string = value.as_string();
  if (string != nullptr && string->markup) return value;
  TextBuilder out;
  for (const char character : to_text(value)) {
    switch (character) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += character;
    }
  }
  return Value(out.take(), true);
}

}  // namespace ac::jinja
