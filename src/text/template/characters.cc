#include "text/template/characters.h"

#include <utf8proc.h>

namespace ac::jinja {
namespace {

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

// What utf8proc maps to one character, and Python to several.
struct Expansion {
  char32_t character;
  const char *upper, *title;
};
constexpr Expansion kExpansions[] = {
    {0xdf, "SS", "Ss"},     {0x149, "ʼN", "ʼN"},  {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},   {0xfb02, "FL", "Fl"}, {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"}, {0xfb05, "ST", "St"}, {0xfb06, "ST", "St"},
};

}  // namespace

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += starts_character(byte);
  return count;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    ++at;
    while (at < text.size() && !starts_character(text[at])) ++at;
  }
  return at;
}

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  char32_t character = first & (first < 0xe0 ? 0x1f : first < 0xf0 ? 0x0f : 0x07);
  while (at < text.size() && !starts_character(text[at]))
    character = (character << 6) | (static_cast<unsigned char>(text[at++]) & 0x3f);
  return character;
}

std::size_t previous_character(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && !starts_character(text[at]));
  return at;
}

void append_character(std::string& text, char32_t character) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

bool is_valid_utf8(std::string_view text) {
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t taken = utf8proc_iterate(at, left, &character);
    if (taken <= 0) return false;
    at += taken;
    left -= taken;
  }
  return true;
}

bool is_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0d) || (character >= 0x1c && character <= 0x20) ||
         character == 0x85 || character == 0xa0 || character == 0x1680 ||
         (character >= 0x2000 && character <= 0x200a) || character == 0x2028 ||
         character == 0x2029 || character == 0x202f || character == 0x205f || character == 0x3000;
}

bool is_line_break(char32_t character) {
  return (character >= 0x0a && character <= 0x0d) || (character >= 0x1c && character <= 0x1e) ||
         character == 0x85 || character == 0x2028 || character == 0x2029;
}

bool is_alpha(char32_t character) {
  const utf8proc_category_t kind = category(character);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t character) { return category(character) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t character) {
  return is_decimal(character) || character == 0xb2 || character == 0xb3 || character == 0xb9 ||
         character == 0x2070 || (character >= 0x2074 && character <= 0x2079) ||
         (character >= 0x2080 && character <= 0x2089) ||
         (character >= 0x2460 && character <= 0x2468);
}

bool is_numeric(char32_t character) {
  const utf8proc_category_t kind = category(character);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t character) { return category(character) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t character) { return category(character) == UTF8PROC_CATEGORY_LL; }
bool is_title(char32_t character) { return category(character) == UTF8PROC_CATEGORY_LT; }

bool is_word(char32_t character) {
  return character == '_' || is_alpha(character) || is_numeric(character);
}

bool is_printable(char32_t character) {
  if (character == ' ') return true;
  const utf8proc_category_t kind = category(character);
  return kind != UTF8PROC_CATEGORY_CN && !(kind >= UTF8PROC_CATEGORY_ZS);
}

std::string upper_of(char32_t character) {
  for (const Expansion& each : kExpansions)
    if (each.character == character) return each.upper;
  std::string text;
  append_character(
      text, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(character))));
  return text;
}

std::string lower_of(char32_t character) {
  if (character == 0x130) return "i\u0307";  // the only one that becomes several
  std::string text;
  append_character(
      text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
  return text;
}

std::string title_of(char32_t character) {
  for (const Expansion& each : kExpansions)
    if (each.character == character) return each.title;
  std::string text;
  append_character(
      text, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(character))));
  return text;
}

std::string to_upper(std::string_view text) {
  std::string upper;
  for (std::size_t at = 0; at < text.size();) upper += upper_of(next_character(text, at));
  return upper;
}

std::string to_lower(std::string_view text) {
  std::string lower;
  for (std::size_t at = 0; at < text.size();) lower += lower_of(next_character(text, at));
  return lower;
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left,
                       bool right) {
  const auto stripped = [&](char32_t character) {
    if (chars == nullptr) return is_space(character);
    for (std::size_t at = 0; at < chars->size();)
      if (next_character(*chars, at) == character) return true;
    return false;
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    if (!stripped(next_character(text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const std::size_t last = previous_character(text, end);
    std::size_t at = last;
    if (!stripped(next_character(text, at))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

}  // namespace ac::jinja
