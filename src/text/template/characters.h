// Text as templates see it: UTF-8 whose positions are code points, with Python's ideas of space,
// case and what can be printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ac::jinja {

// `text` must be valid UTF-8, here and below.
std::size_t count_characters(std::string_view text);
// The byte at which character `index` begins; the size of `text` if it has no more than `index`.
std::size_t byte_of_character(std::string_view text, std::size_t index);
// The character at byte `at`, which moves to the next one.
char32_t next_character(std::string_view text, std::size_t& at);
// The byte at which the character before byte `at` begins.
std::size_t previous_character(std::string_view text, std::size_t at);
void append_character(std::string& text, char32_t character);

bool is_valid_utf8(std::string_view text);

bool is_space(char32_t character);
bool is_line_break(char32_t character);  // where splitlines() splits
bool is_alpha(char32_t character);
bool is_digit(char32_t character);
bool is_decimal(char32_t character);
bool is_numeric(char32_t character);
bool is_upper(char32_t character);
bool is_lower(char32_t character);
bool is_title(char32_t character);
bool is_word(char32_t character);       // \w of Python's regular expressions
bool is_printable(char32_t character);  // shown as it is by repr()

// In another case, which may be several characters: a sharp s becomes SS.
std::string upper_of(char32_t character);
std::string lower_of(char32_t character);
std::string title_of(char32_t character);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

// Without the characters of `chars` (white space if it is null) at either end.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace ac::jinja
