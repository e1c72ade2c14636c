#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "base/error.h"
#include "text/unicode_since.h"

namespace ac::text {
namespace {

static_assert(static_cast<int>(Category::Cn) == UTF8PROC_CATEGORY_CN &&
              static_cast<int>(Category::Lo) == UTF8PROC_CATEGORY_LO &&
              static_cast<int>(Category::Me) == UTF8PROC_CATEGORY_ME &&
              static_cast<int>(Category::No) == UTF8PROC_CATEGORY_NO &&
              static_cast<int>(Category::Po) == UTF8PROC_CATEGORY_PO &&
              static_cast<int>(Category::So) == UTF8PROC_CATEGORY_SO &&
              static_cast<int>(Category::Zp) == UTF8PROC_CATEGORY_ZP &&
              static_cast<int>(Category::Co) == UTF8PROC_CATEGORY_CO);

// The length of the character at the front, 0 if it is none, or minus the length of what could be
// the beginning of one (or, if more bytes follow, is a character cut short).
int character_at(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) == bytes.size()) return -i;
    unsigned least = 0x80, most = 0xBF;
    if (i == 1) {  // no overlong forms, no surrogates, none beyond U+10FFFF
      if (first == 0xE0) least = 0xA0;
      if (first == 0xED) most = 0x9F;
      if (first == 0xF0) least = 0x90;
      if (first == 0xF4) most = 0x8F;
    }
    if (byte(i) < least || byte(i) > most) return -i;
  }
  return length;
}

std::size_t ascii_prefix(std::string_view bytes) {
  return static_cast<std::size_t>(
      std::find_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) != 0; }) -
      bytes.begin());
}

// The lower case of letters of Unicode 16 and 17.
char32_t recent_lowercase(char32_t c) {
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    default:
      return c;
  }
}

template <class Rows>
auto row_of(const Rows& rows, char32_t c) {
  const auto row =
      std::partition_point(rows.begin(), rows.end(), [c](const auto& one) { return one.last < c; });
  return row != rows.end() && row->first <= c ? &*row : nullptr;
}

bool normalizers_know(char32_t c) {
  if (c < kNormalizedSince.front().first || (c > 0x32FF && c < 0xA7CB) ||
      (c >= 0xAC00 && c <= 0xFFFF))
    return true;
  return !row_of(kNormalizedSince, c) && !row_of(kAssignedSince, c);
}

void append_normal_form(std::string& out, std::string_view text, int options) {
  if (text.empty()) return;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  AC_ASSERT(size >= 0);  // the text is valid UTF-8
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

}  // namespace

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), tail(0);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), tail(6), tail(0);
  } else {
    put(0xF0 | c >> 18), tail(12), tail(6), tail(0);
  }
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_.append(bytes);
    held_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const int length = character_at(bytes);
    if (length < 0 && static_cast<std::size_t>(-length) == bytes.size()) {
      held_ = bytes;
      return;
    }
    if (length > 0)
      out += bytes.substr(0, static_cast<std::size_t>(length));
    else
      out += kReplacementCharacter;
    bytes.remove_prefix(length == 0 ? 1 : static_cast<std::size_t>(std::abs(length)));
  }
}

void Utf8Repair::finish(std::string& out) {
  if (!held_.empty()) out += kReplacementCharacter;
  held_.clear();
}

bool is_utf8(std::string_view bytes) {
  while (true) {
    bytes.remove_prefix(ascii_prefix(bytes));
    if (bytes.empty()) return true;
    const int length = character_at(bytes);
    if (length <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(length));
  }
}

std::string repaired_utf8(std::string bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string out;
  Utf8Repair repair;
  repair.push(bytes, out);
  repair.finish(out);
  return out;
}

Category category(char32_t c) {
  if (c >= kAssignedSince.front().first && c <= kAssignedSince.back().last)
    if (const AssignedSince* row = row_of(kAssignedSince, c)) return row->category;
  return static_cast<Category>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_mark(char32_t c) {
  const Category of = category(c);
  return of >= Category::Mn && of <= Category::Me;
}

bool is_number(char32_t c) {
  const Category of = category(c);
  return of >= Category::Nd && of <= Category::No;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
           (c > 'z' && c < 0x7F);
  const Category of = category(c);
  return of >= Category::Pc && of <= Category::Po;
}

bool is_word(char32_t c) {
  if (c < 0x80)
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  const Category of = category(c);
  return (of >= Category::Lu && of <= Category::Nl) || of == Category::Pc || c == 0x200C ||
         c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||                       // letters in circles
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||  // and in squares
         (c >= 0x1F170 && c <= 0x1F189);
}

void append_lowercase(std::string& text, char32_t c) {
  if (c == 0x130) {
    text += "i\xCC\x87";
    return;
  }
  const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  append_utf8(text, lower == c ? recent_lowercase(c) : lower);
}

std::string normal_form(std::string_view text, NormalForm form) {
  // ASCII is in every normal form, and so is Latin-1 in the one that most vocabularies use.
  const bool simple = form == NormalForm::nfc
                          ? std::all_of(text.begin(), text.end(),
                                        [](char c) { return static_cast<unsigned char>(c) < 0xCC; })
                          : ascii_prefix(text) == text.size();
  if (simple) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    if (normalizers_know(next_character(text, at))) continue;
    append_normal_form(out, text.substr(begin, here - begin), options);
    out += text.substr(here, at - here);
    begin = at;
  }
  append_normal_form(out, text.substr(begin), options);
  return out;
}

std::size_t grapheme_end(std::string_view text, std::size_t at) {
  utf8proc_int32_t state = 0;
  auto before = static_cast<utf8proc_int32_t>(next_character(text, at));
  while (at < text.size()) {
    std::size_t next = at;
    const auto c = static_cast<utf8proc_int32_t>(next_character(text, next));
    if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
    before = c;
    at = next;
  }
  return at;
}

}  // namespace ac::text
