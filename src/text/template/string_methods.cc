#include "text/template/string_methods.h"

#include <algorithm>
#include <map>

#include "text/template/characters.h"
#include "text/template/format.h"
#include "text/template/operators.h"

namespace ac::jinja {
namespace {

using Method = Value (*)(const String& self, const Arguments& arguments);

Value text_value(const String& self, std::string text) {
  return Value(std::move(text), self.markup);
}

// --- case and kinds of characters

template <class Each>
std::string each_character(std::string_view text, Each each) {
  TextBuilder out;
  for (std::size_t at = 0; at < text.size();) out += each(next_character(text, at));
  return out.take();
}

bool is_cased(char32_t character) {
  return is_upper(character) || is_lower(character) || is_title(character);
}

// Words begin after what has no case; their first character becomes title case.
std::string titled(std::string_view text) {
  bool within = false;
  return each_character(text, [&within](char32_t character) {
    std::string result = within ? lower_of(character) : title_of(character);
    within = is_cased(character);
    return result;
  });
}

std::string swapped(std::string_view text) {
  return each_character(text, [](char32_t character) {
    return is_upper(character) ? lower_of(character) : upper_of(character);
  });
}

template <class Test>
Value all_are(const String& self, const Arguments& arguments, Test test) {
  const Bound none("is...", arguments, {});
  for (std::size_t at = 0; at < self.text.size();)
    if (!test(next_character(self.text, at))) return Value(false);
  return Value(!self.text.empty());
}

bool is_titled(std::string_view text) {
  bool any = false, within = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    const bool begins = is_upper(character) || is_title(character);
    if (begins && within) return false;
    if (is_lower(character) && !within) return false;
    within = begins || is_lower(character);
    any |= within;
  }
  return any;
}

bool is_identifier(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t character = next_character(text, at);
    if (!is_word(character) || (first && is_numeric(character))) return false;
  }
  return !text.empty();
}

// --- searching: places are characters outside, bytes inside

std::size_t characters_before(const String& self, std::size_t byte) {
  return self.ascii() ? byte : count_characters(std::string_view(self.text).substr(0, byte));
}

std::size_t byte_of(const String& self, std::int64_t character) {
  const auto at = static_cast<std::size_t>(character);
  return self.ascii() ? std::min(at, self.text.size()) : byte_of_character(self.text, at);
}

// The part that start and end leave, as bytes; false if it begins beyond the end.
struct Part {
  std::size_t begin, end;
  bool exists;
  std::string_view of(const String& self) const {
    return std::string_view(self.text).substr(begin, end - begin);
  }
};

Part part(const String& self, const Bound& given, std::size_t start, std::size_t stop) {
  const auto size = static_cast<std::int64_t>(self.length);
  const auto clamp = [size](std::int64_t at) {
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t first = clamp(given.integer(start, 0));
  const std::int64_t last = std::min(clamp(given.integer(stop, size)), size);
  if (first > last) return {0, 0, false};
  return {byte_of(self, first), byte_of(self, last), true};
}

std::int64_t found_at(const String& self, const Arguments& arguments, const char* name,
                      bool from_right) {
  const Bound given(name, arguments, {"sub", "start", "end"}, 1);
  const std::string& wanted = given.text(0);
  const Part where = part(self, given, 1, 2);
  if (!where.exists) return -1;
  work(1 + self.text.size() / 16);
  const std::string_view text = where.of(self);
  const std::size_t found = from_right ? text.rfind(wanted) : text.find(wanted);
  if (found == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(characters_before(self, where.begin + found));
}

Value index_or_fail(std::int64_t found) {
  if (found < 0) fail("substring not found");
  return Value(found);
}

Value count(const String& self, const Arguments& arguments) {
  const Bound given("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& wanted = given.text(0);
  const Part where = part(self, given, 1, 2);
  if (!where.exists) return Value(0);
  const std::string_view text = where.of(self);
  work(1 + text.size() / 16);
  if (wanted.empty()) return Value::size(count_characters(text) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + wanted.size()))
    ++count;
  return Value(count);
}

Value begins_or_ends(const String& self, const Arguments& arguments, const char* name, bool ends) {
  const Bound given(name, arguments, {"prefix", "start", "end"}, 1);
  const Part where = part(self, given, 1, 2);
  const auto matches = [&](const Value& value) {
    const String* wanted = value.as_string();
    if (wanted == nullptr)
      fail("{} first arg must be str or a tuple of str, not {}", name, type_name(value));
    if (!where.exists) return false;
    const std::string_view text = where.of(self);
    return ends ? text.ends_with(wanted->text) : text.starts_with(wanted->text);
  };
  const List* several = given[0].as_sequence();
  if (several == nullptr || !several->is_tuple()) return Value(matches(given[0]));
  for (const Value& one : several->items)
    if (matches(one)) return Value(true);
  return Value(false);
}

// --- splitting and joining

std::vector<Value> split_space(const std::string& text, std::int64_t limit, bool from_right) {
  std::vector<Value> parts;
  std::string_view rest = text;
  while (true) {
    rest = strip(rest, nullptr, !from_right, from_right);
    if (rest.empty()) break;
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.emplace_back(rest);  // the far end keeps its white space
      break;
    }
    std::size_t at = from_right ? rest.size() : 0;
    while (from_right ? at > 0 : at < rest.size()) {
      std::size_t next = from_right ? previous_character(rest, at) : at;
      const std::size_t before = next;
      const bool space = is_space(next_character(rest, next));
      if (space) break;
      at = from_right ? before : next;
    }
    parts.emplace_back(from_right ? rest.substr(at) : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : rest.substr(at);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> split_at(const std::string& text, const std::string& separator,
                            std::int64_t limit, bool from_right) {
  if (separator.empty()) fail("empty separator");
  std::vector<Value> parts;
  std::string_view rest = text;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = from_right ? rest.rfind(separator) : rest.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = rest.substr(at + separator.size());
    parts.emplace_back(from_right ? after : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : after;
  }
  parts.emplace_back(rest);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(const String& self, const Arguments& arguments, bool from_right) {
  const Bound given(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
  const std::int64_t limit = given.integer(1, -1);
  work(1 + self.text.size() / 16);
  std::vector<Value> parts = given.has(0) ? split_at(self.text, given.text(0), limit, from_right)
                                          : split_space(self.text, limit, from_right);
  if (self.markup)
    for (Value& part : parts) part = Value(part.as_string()->text, true);
  return Value::list(std::move(parts));
}

Value partition(const String& self, const Arguments& arguments, bool from_right) {
  const Bound given("partition", arguments, {"sep"}, 1);
  const std::string& separator = given.text(0);
  if (separator.empty()) fail("empty separator");
  const std::size_t at = from_right ? self.text.rfind(separator) : self.text.find(separator);
  if (at == std::string::npos)
    return from_right ? Value::tuple({"", "", Value(self.text)})
                      : Value::tuple({Value(self.text), "", ""});
  return Value::tuple(
      {Value(self.text.substr(0, at)), given[0], Value(self.text.substr(at + separator.size()))});
}

Value join(const String& self, const Arguments& arguments) {
  const Bound given("join", arguments, {"iterable"}, 1);
  TextBuilder out;
  std::size_t at = 0;
  for_each(given[0], [&](const Value& item) {
    const String* string = item.as_string();
    if (string == nullptr)
      fail("sequence item {}: expected str instance, {} found", at, type_name(item));
    if (at++ > 0) out += self.text;
    out += self.markup ? escaped(item).as_string()->text : string->text;
    return true;
  });
  return text_value(self, out.take());
}

Value strip_method(const String& self, const Arguments& arguments, bool left, bool right) {
  const Bound given("strip", arguments, {"chars"});
  const std::string_view chars = given.has(0) ? std::string_view(given.text(0)) : "";
  work(1 + chars.size());
  return text_value(self,
                    std::string(strip(self.text, given.has(0) ? &chars : nullptr, left, right)));
}

std::string padding(std::int64_t count, std::string_view fill) {
  TextBuilder out;
  for (; count > 0; --count) out += fill;
  return out.take();
}

std::string_view fill_of(const Bound& given, std::size_t i) {
  if (!given.given(i)) return " ";
  if (count_characters(given.text(i)) != 1)
    fail("The fill character must be exactly one character long");
  return given.text(i);
}

Value justify(const String& self, const Arguments& arguments, bool left) {
  const Bound given(left ? "ljust" : "rjust", arguments, {"width", "fillchar"}, 1);
  const std::string fill =
      padding(given.integer(0, 0) - static_cast<std::int64_t>(self.length), fill_of(given, 1));
  return text_value(self, left ? self.text + fill : fill + self.text);
}

Value zero_fill(const String& self, const Arguments& arguments) {
  const Bound given("zfill", arguments, {"width"}, 1);
  const std::string zeros =
      padding(given.integer(0, 0) - static_cast<std::int64_t>(self.length), "0");
  const bool sign = !self.text.empty() && (self.text[0] == '-' || self.text[0] == '+');
  return text_value(self, self.text.substr(0, sign) + zeros + self.text.substr(sign));
}

Value expand_tabs(const String& self, const Arguments& arguments) {
  const Bound given("expandtabs", arguments, {"tabsize"});
  const std::int64_t size = given.integer(0, 8);
  TextBuilder out;
  std::int64_t column = 0;
  for (std::size_t at = 0; at < self.text.size();) {
    const std::size_t begin = at;
    const char32_t character = next_character(self.text, at);
    if (character == '\t') {
      const std::int64_t count = size > 0 ? size - column % size : 0;
      out += padding(count, " ");
      column += count;
      continue;
    }
    out += std::string_view(self.text).substr(begin, at - begin);
    column = character == '\n' || character == '\r' ? 0 : column + 1;
  }
  return text_value(self, out.take());
}

Value format_map(const String& self, const Arguments& arguments) {
  const Bound given("format_map", arguments, {"mapping"}, 1);
  if (given[0].as_dict() == nullptr) fail("format_map() takes a mapping");
  Arguments named;
  for (const auto& [key, value] : given[0].as_dict()->items)
    if (key.as_string() != nullptr) named.named.emplace_back(key.as_string()->text, value);
  return text_value(self, brace_style(self.text, named));
}

const std::map<std::string_view, Method>& methods() {
  using S = const String&;
  using A = const Arguments&;
  static const std::map<std::string_view, Method> all = {
      {"upper", [](S s, A) { return text_value(s, to_upper(s.text)); }},
      {"lower", [](S s, A) { return text_value(s, to_lower(s.text)); }},
      {"casefold", [](S s, A) { return text_value(s, to_lower(s.text)); }},
      {"capitalize", [](S s, A) { return text_value(s, capitalized(s.text)); }},
      {"title", [](S s, A) { return text_value(s, titled(s.text)); }},
      {"swapcase", [](S s, A) { return text_value(s, swapped(s.text)); }},
      {"isalpha", [](S s, A a) { return all_are(s, a, is_alpha); }},
      {"isdigit", [](S s, A a) { return all_are(s, a, is_digit); }},
      {"isdecimal", [](S s, A a) { return all_are(s, a, is_decimal); }},
      {"isnumeric", [](S s, A a) { return all_are(s, a, is_numeric); }},
      {"isspace", [](S s, A a) { return all_are(s, a, is_space); }},
      {"isalnum",
       [](S s, A a) {
         return all_are(s, a, [](char32_t c) { return is_alpha(c) || is_numeric(c); });
       }},
      {"isprintable",
       [](S s, A a) { return Value(s.text.empty() || truth(all_are(s, a, is_printable))); }},
      {"isascii", [](S s, A) { return Value(s.ascii()); }},
      {"isupper", [](S s, A) { return Value(is_cased_text(s.text, true)); }},
      {"islower", [](S s, A) { return Value(is_cased_text(s.text, false)); }},
      {"istitle", [](S s, A) { return Value(is_titled(s.text)); }},
      {"isidentifier", [](S s, A) { return Value(is_identifier(s.text)); }},
      {"find", [](S s, A a) { return Value(found_at(s, a, "find", false)); }},
      {"rfind", [](S s, A a) { return Value(found_at(s, a, "rfind", true)); }},
      {"index", [](S s, A a) { return index_or_fail(found_at(s, a, "index", false)); }},
      {"rindex", [](S s, A a) { return index_or_fail(found_at(s, a, "rindex", true)); }},
      {"count", count},
      {"startswith", [](S s, A a) { return begins_or_ends(s, a, "startswith", false); }},
      {"endswith", [](S s, A a) { return begins_or_ends(s, a, "endswith", true); }},
      {"split", [](S s, A a) { return split(s, a, false); }},
      {"rsplit", [](S s, A a) { return split(s, a, true); }},
      {"splitlines",
       [](S s, A a) {
         const Bound given("splitlines", a, {"keepends"});
         return Value::list(split_lines(s.text, given.flag(0)));
       }},
      {"partition", [](S s, A a) { return partition(s, a, false); }},
      {"rpartition", [](S s, A a) { return partition(s, a, true); }},
      {"join", join},
      {"strip", [](S s, A a) { return strip_method(s, a, true, true); }},
      {"lstrip", [](S s, A a) { return strip_method(s, a, true, false); }},
      {"rstrip", [](S s, A a) { return strip_method(s, a, false, true); }},
      {"removeprefix",
       [](S s, A a) {
         const Bound given("removeprefix", a, {"prefix"}, 1);
         const bool has = s.text.starts_with(given.text(0));
         return text_value(s, has ? s.text.substr(given.text(0).size()) : s.text);
       }},
      {"removesuffix",
       [](S s, A a) {
         const Bound given("removesuffix", a, {"suffix"}, 1);
         const bool has = s.text.ends_with(given.text(0));
         return text_value(s,
                           has ? s.text.substr(0, s.text.size() - given.text(0).size()) : s.text);
       }},
      {"replace",
       [](S s, A a) {
         const Bound given("replace", a, {"old", "new", "count"}, 2);
         return text_value(s, replaced(s.text, given.text(0), given.text(1), given.integer(2, -1)));
       }},
      {"center",
       [](S s, A a) {
         const Bound given("center", a, {"width", "fillchar"}, 1);
         return text_value(s, centered(s, given.integer(0, 0), fill_of(given, 1)));
       }},
      {"ljust", [](S s, A a) { return justify(s, a, true); }},
      {"rjust", [](S s, A a) { return justify(s, a, false); }},
      {"zfill", zero_fill},
      {"expandtabs", expand_tabs},
      {"format", [](S s, A a) { return text_value(s, brace_style(s.text, a)); }},
      {"format_map", format_map},
  };
  return all;
}

}  // namespace

Value string_method(const Value& string, std::string_view name) {
  if (name == "encode" || name == "translate" || name == "maketrans")
    fail("the method '{}' of strings is not supported", name);
  const auto found = methods().find(name);
  if (found == methods().end()) return {};
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(
      std::string(name), [string, run = found->second](Renderer&, const Arguments& arguments) {
        work(1 + string.as_string()->text.size() / 64);
        return run(*string.as_string(), arguments);
      })));
}

std::string capitalized(std::string_view text) {
  bool first = true;
  return each_character(text, [&first](char32_t character) {
    return std::exchange(first, false) ? title_of(character) : lower_of(character);
  });
}

std::vector<Value> split_lines(const std::string& text, bool keep_ends) {
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t character = next_character(text, at);
    if (!is_line_break(character)) continue;
    if (character == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t count) {
  work(1 + text.size() / 16);
  TextBuilder out;
  std::size_t at = 0;
  if (from.empty()) {  // between all characters
    for (; count != 0; --count) {
      out += to;
      if (at >= text.size()) return out.take();
      const std::size_t begin = at;
      next_character(text, at);
      out += std::string_view(text).substr(begin, at - begin);
    }
  }
  for (; count != 0 && !from.empty(); --count) {
    const std::size_t found = text.find(from, at);
    if (found == std::string::npos) break;
    out += std::string_view(text).substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  out += std::string_view(text).substr(at);
  return out.take();
}

std::string centered(const String& string, std::int64_t width, std::string_view fill) {
  const std::int64_t missing = width - static_cast<std::int64_t>(string.length);
  if (missing <= 0) return string.text;
  const std::int64_t left = missing / 2 + (missing & width & 1);  // as Python rounds it
  return padding(left, fill) + string.text + padding(missing - left, fill);
}

bool is_cased_text(std::string_view text, bool upper) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    if (is_title(character) || (upper ? is_lower(character) : is_upper(character))) return false;
    any |= is_cased(character);
  }
  return any;
}

}  // namespace ac::jinja
