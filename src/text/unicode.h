// UTF-8, and the properties and normal forms of characters. The data are those of utf8proc, with
// what Unicode 16 added since (unicode_since.h), so that old and new versions of the library agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ac::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The character that starts at `at`, which moves behind it. The text must be valid UTF-8.
inline char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  if (first < 0x80) return ++at, first;
  if (first < 0xE0) return at += 2, (first & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  if (first < 0xF0)
    return at += 3, (first & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  return at += 4, (first & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
                      (byte(at - 1) & 0x3F);
}
// How many bytes the character takes whose first byte this is.
inline std::size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
// Where the character before `at` starts; `at` is not 0.
inline std::size_t character_before(std::string_view text, std::size_t at) {
  do --at;
  while (is_continuation(text[at]));
  return at;
}
void append_utf8(std::string& text, char32_t character);
std::size_t count_characters(std::string_view text);

// Makes valid UTF-8 of any bytes, which may come in parts: each longest part of a character that is
// cut short becomes one U+FFFD, as Unicode recommends. The end of a part is held back while it may
// become a character.
class Utf8Repair {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  std::string held_;  // fewer than four bytes, the beginning of a character
};
bool is_utf8(std::string_view bytes);
std::string repaired_utf8(std::string bytes);

// General categories, as Unicode names them.
enum class Category : std::uint8_t {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co
};
Category category(char32_t character);
bool is_white_space(char32_t character);
bool is_mark(char32_t character);
bool is_number(char32_t character);
bool is_punctuation(char32_t character);  // as Unicode has it, and all of ASCII's
bool is_word(char32_t character);         // letters, marks, digits, connectors

// Appends the character's lower case: two characters for one.
void append_lowercase(std::string& text, char32_t character);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normal_form(std::string_view text, NormalForm form);

// Where the extended grapheme cluster ends that starts at `at`.
std::size_t grapheme_end(std::string_view text, std::size_t at);

}  // namespace ac::text
