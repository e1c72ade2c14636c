#include "advise/plain_text.h"

#include <cstdint>

namespace ac {
namespace {

// The bytes of the character that text begins with; 0 if they are not UTF-8.
std::size_t character(std::string_view text, std::uint32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  code = byte(0);
  if (code < 0x80) return 1;
  const std::size_t size = code >= 0xf0 ? 4 : code >= 0xe0 ? 3 : 2;
  if (code < 0xc2 || code > 0xf4 || size > text.size()) return 0;
  code &= 0x7fu >> size;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool shorter = code < (size == 4 ? 0x10000u : size == 3 ? 0x800u : 0x80u);
  return shorter || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : size;
}

bool is_unfit(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
         code == 0xfeff || (code >= 0xe0000 && code <= 0xe007f);
}

}  // namespace

std::string plain_text(std::string_view text, std::size_t max_bytes) {
  std::string plain;
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character(text, code);
    const bool is_space = text[0] == '\n' || text[0] == '\r' || text[0] == '\t';
    const std::string_view shown = is_space                      ? " "
                                   : size == 0 || is_unfit(code) ? "?"
                                                                 : text.substr(0, size);
    if (plain.size() + shown.size() > max_bytes) return plain + "...";
    plain += shown;
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return plain;
}

}  // namespace ac
