// The alphabet of byte-level tokenizers: a printable character for each of the 256 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace ac::text {

// Printable ASCII and Latin-1 stand for themselves, all others for U+0100 and on.
inline constexpr std::array<std::uint16_t, 256> kByteCharacters = [] {
  std::array<std::uint16_t, 256> characters{};
  std::uint16_t next = 256;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}();

inline std::string as_byte_characters(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes)
    append_utf8(text, kByteCharacters[static_cast<unsigned char>(byte)]);
  return text;
}

// The bytes that a text of such characters stands for; nothing if another character is in it.
inline std::optional<std::string> from_byte_characters(std::string_view text) {
  static constexpr auto kBytes = [] {
    std::array<std::int16_t, 324> bytes{};
    for (auto& byte : bytes) byte = -1;
    for (std::int16_t byte = 0; byte < 256; ++byte)
      bytes[kByteCharacters[static_cast<std::size_t>(byte)]] = byte;
    return bytes;
  }();
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    if (character >= kBytes.size() || kBytes[character] < 0) return {};
    bytes += static_cast<char>(kBytes[character]);
  }
  return bytes;
}

}  // namespace ac::text
