#include <algorithm>
#include <cmath>
#include <map>

#include "text/template/bind.h"
#include "text/template/builtins.h"
#include "text/template/characters.h"
#include "text/template/format.h"
#include "text/template/json_text.h"
#include "text/template/numbers.h"
#include "text/template/operators.h"
#include "text/template/sequence_filters.h"
#include "text/template/string_methods.h"

namespace ac::jinja {
namespace {

// Text that keeps whether it is markup.
Value soft_text(const Value& value) {
  return value.as_string() != nullptr ? value : Value(to_text(value));
}

Value with_text(const Value& value, std::string text) {
  return Value(std::move(text), value.as_string() != nullptr && value.as_string()->markup);
}

Value absolute(Renderer&, const Value& value, const Arguments&) {
  if (value.is_integer())
    return value.integer() < 0 ? negated(value, true) : Value(value.integer());
  if (value.is_number()) return Value(std::fabs(value.real()));
  fail("bad operand type for abs(): '{}'", type_name(value));
}

Value capitalize(Renderer&, const Value& value, const Arguments&) {
  return with_text(value, capitalized(to_text(value)));
}

Value center(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("center", arguments, {"width"});
  return with_text(value, centered(*soft_text(value).as_string(), given.integer(0, 80), " "));
}

Value fallback(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("default", arguments, {"default_value", "boolean"});
  const bool unset = value.as_undefined() != nullptr || (given.flag(1) && !truth(value));
  return unset ? given.get(0, Value("")) : value;
}

Value escape(Renderer&, const Value& value, const Arguments&) { return escaped(value); }

Value force_escape(Renderer&, const Value& value, const Arguments&) {
  return escaped(Value(to_text(value)));
}

Value file_size(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("filesizeformat", arguments, {"binary"});
  const bool binary = given.flag(0);
  const std::optional<double> bytes = to_real(value);
  if (!bytes) fail("filesizeformat: not a number: {}", repr(value));
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value("1 Byte");
  if (*bytes < base) return Value(fmt::format("{} Bytes", static_cast<std::int64_t>(*bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t at = 0;
  for (unit *= base; at + 1 < kPrefixes.size() && *bytes >= unit; ++at) unit *= base;
  const std::string prefix = binary && at == 0 ? "K" : std::string(1, kPrefixes[at]);
  return Value(fmt::format("{:.1f} {}{}B", base * *bytes / unit, prefix, binary ? "i" : ""));
}

Value format(Renderer&, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    fail("can't handle positional and keyword arguments at the same time");
  Value values = Value::tuple(arguments.positional);
  if (!arguments.named.empty()) {
    Dict::Items items;
    for (const auto& [name, item] : arguments.named) items.emplace_back(Value(name), item);
    values = Value(std::make_shared<const Dict>(std::move(items)));
  }
  return Value(printf_style(to_text(value), values));
}

Value indent(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("indent", arguments, {"width", "first", "blank"});
  if (value.as_string() == nullptr) {
    if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
    fail("indent() wants a str, not {}", type_name(value));
  }
  const std::string indention = given.given(0) && given[0].as_string() != nullptr
                                    ? given.text(0)
                                    : to_text(arithmetic("*", " ", Value(given.integer(0, 4))));
  const bool first = given.flag(1), blank = given.flag(2);
  const std::vector<Value> lines = split_lines(value.as_string()->text + "\n", false);
  TextBuilder out;
  if (first) out += indention;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i].as_string()->text;
    if (i > 0) {
      out += '\n';
      if (blank || !line.empty()) out += indention;
    }
    out += line;
  }
  return with_text(value, out.take());
}

Value to_integer(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("int", arguments, {"default", "base"});
  if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
  if (value.is_integer()) return Value(value.integer());
  if (const String* string = value.as_string())
    if (const auto parsed = parse_integer(string->text, given.integer(1, 10)))
      return Value(*parsed);
  const std::optional<double> real = to_real(value);
  if (value.as_real() != nullptr && std::isinf(*real))
    fail("cannot convert float infinity to integer");
  if (!real || !std::isfinite(*real)) return given.get(0, Value(0));
  if (std::fabs(*real) >= 9.2e18) fail("an integer does not fit into 64 bits");
  return Value(static_cast<std::int64_t>(*real));
}

Value to_float(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("float", arguments, {"default"});
  if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
  const std::optional<double> real = to_real(value);
  return real ? Value(*real) : given.get(0, Value(0.0));
}

Value join(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("join", arguments, {"d", "attribute"});
  const std::string separator = given.given(0) ? to_text(given[0]) : "";
  const AttributePath path(given.get(1, Value(None())));
  TextBuilder out;
  bool first = true;
  for_each(value, [&](const Value& item) {
    if (!std::exchange(first, false)) out += separator;
    out += to_text(path.of(item));
    return true;
  });
  return Value(out.take());
}

Value lower(Renderer&, const Value& value, const Arguments&) {
  return with_text(value, to_lower(to_text(value)));
}

Value upper(Renderer&, const Value& value, const Arguments&) {
  return with_text(value, to_upper(to_text(value)));
}

Value replace(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("replace", arguments, {"old", "new", "count"}, 2);
  return Value(
      replaced(to_text(value), to_text(given[0]), to_text(given[1]), given.integer(2, -1)));
}

Value round(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("round", arguments, {"precision", "method"});
  const std::int64_t precision = given.integer(0, 0);
  const std::string method = given.given(1) ? to_text(given[1]) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
  if (!value.is_number()) fail("type {} doesn't define __round__ method", type_name(value));
  if (method == "common") return rounded(value, precision);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.real() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value safe(Renderer&, const Value& value, const Arguments&) { return Value(to_text(value), true); }

Value string(Renderer&, const Value& value, const Arguments&) { return soft_text(value); }

// Words begin after white space, hyphens and opening brackets.
Value title(Renderer&, const Value& value, const Arguments&) {
  const std::string text = to_text(value);
  TextBuilder out;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t character = next_character(text, at);
    const bool gap =
        is_space(character) ||
        (character < 0x80 &&
         std::string_view("-({[<").find(static_cast<char>(character)) != std::string_view::npos);
    out += gap ? std::string_view(text).substr(begin, at - begin)
               : std::string_view(begins ? upper_of(character) : lower_of(character));
    begins = gap;
  }
  return with_text(value, out.take());
}

Value tojson(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = given.flag(0);
  style.sort_keys = given.flag(3);
  if (given.has(1))
    style.indent = given[1].as_string() != nullptr
                       ? given.text(1)
                       : to_text(arithmetic("*", " ", Value(given.integer(1, 0))));
  style.item_separator = style.indent ? "," : ", ";
  style.key_separator = ": ";
  if (given.has(2)) {
    const std::vector<Value> both = items_of(given[2]);
    if (both.size() != 2 || both[0].as_string() == nullptr || both[1].as_string() == nullptr)
      fail("tojson: separators must be two strings");
    style.item_separator = both[0].as_string()->text;
    style.key_separator = both[1].as_string()->text;
  }
  return Value(to_json(value, style));
}

Value trim(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("trim", arguments, {"chars"});
  const std::string_view chars = given.has(0) ? std::string_view(given.text(0)) : "";
  return with_text(value,
                   std::string(strip(to_text(value), given.has(0) ? &chars : nullptr, true, true)));
}

Value truncate(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Value end = given.get(2, Value("..."));
  const std::int64_t wanted = given.integer(0, 255), leeway = given.integer(3, 5);
  const std::int64_t kept = wanted - length(end);
  if (kept < 0) fail("expected length >= {}, got {}", length(end), wanted);
  if (leeway < 0) fail("expected leeway >= 0, got {}", leeway);
  if (length(value) <= wanted + leeway) return value;
  const String* text = value.as_string();
  if (text == nullptr) fail("truncate() wants a str, not {}", type_name(value));
  std::string cut =
      text->text.substr(0, byte_of_character(text->text, static_cast<std::size_t>(kept)));
  if (!given.flag(1)) cut = cut.substr(0, cut.rfind(' '));
  return with_text(value, cut + to_text(end));
}

std::string url_quoted(const Value& value, bool query) {
  TextBuilder out;
  for (const char byte : to_text(value)) {
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                       (byte >= 'A' && byte <= 'Z') ||
                       std::string_view("_.-~").find(byte) != std::string_view::npos;
    if (plain || (byte == '/' && !query))
      out += byte;
    else if (byte == ' ' && query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(byte));
  }
  return out.take();
}

Value url_encode(Renderer&, const Value& value, const Arguments&) {
  if (value.as_string() != nullptr || !is_iterable(value)) return Value(url_quoted(value, false));
  TextBuilder out;
  const auto add = [&out](const Value& key, const Value& item) {
    if (!out.text().empty()) out += '&';
    out += url_quoted(key, true);
    out += '=';
    out += url_quoted(item, true);
  };
  if (const Dict* dict = value.as_dict()) {
    for (const auto& [key, item] : dict->items) add(key, item);
    return Value(out.take());
  }
  for_each(value, [&](const Value& pair) {
    const std::vector<Value> both = items_of(pair);
    if (both.size() != 2) fail("urlencode wants pairs");
    add(both[0], both[1]);
    return true;
  });
  return Value(out.take());
}

Value count_words(Renderer&, const Value& value, const Arguments&) {
  const std::string text = to_text(value);
  std::int64_t count = 0;
  bool within = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool word = is_word(next_character(text, at));
    count += word && !within;
    within = word;
  }
  return Value(count);
}

Value attribute(Renderer&, const Value& value, const Arguments& arguments) {
  const Bound given("attr", arguments, {"name"}, 1);
  if (const Undefined* undefined = value.as_undefined()) throw Failure(undefined->message);
  Value found = method(value, given.text(0));
  if (!found.is_missing()) return found;
  return Value::undefined(
      fmt::format("{} has no attribute {}", repr_text(described(value)), repr_text(given.text(0))));
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = [] {
    std::map<std::string, Filter> table = {
        {"abs", absolute},
        {"attr", attribute},
        {"capitalize", capitalize},
        {"center", center},
        {"d", fallback},
        {"default", fallback},
        {"e", escape},
        {"escape", escape},
        {"filesizeformat", file_size},
        {"float", to_float},
        {"forceescape", force_escape},
        {"format", format},
        {"indent", indent},
        {"int", to_integer},
        {"join", join},
        {"lower", lower},
        {"replace", replace},
        {"round", round},
        {"safe", safe},
        {"string", string},
        {"title", title},
        {"tojson", tojson},
        {"trim", trim},
        {"truncate", truncate},
        {"upper", upper},
        {"urlencode", url_encode},
        {"wordcount", count_words},
    };
    for (const auto& [name, filter] : sequence_filters()) table.emplace(name, filter);
    // Jinja has them; they make HTML or are of no use in a prompt.
    for (const char* name : {"pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"})
      table.emplace(name, nullptr);
    return table;
  }();
  return all;
}

}  // namespace

bool has_filter(const std::string& name) { return filters().count(name) > 0; }

Value call_filter(Renderer& renderer, const std::string& name, const Value& value,
                  const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail("No filter named {} found.", repr_text(name));
  if (found->second == nullptr) fail("the filter '{}' is not supported", name);
  return found->second(renderer, value, arguments);
}

}  // namespace ac::jinja
