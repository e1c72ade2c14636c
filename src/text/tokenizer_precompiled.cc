// SentencePiece's table of replacements: a trie as a "double array" of bytes, then the texts that
// its values point into, each ended by a zero.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer_normalizer.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

std::string decode_base64(const std::string& text, const TokenizerFields& fields) {
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  std::size_t end = text.size();
  while (end > 0 && text[end - 1] == '=' && text.size() - end < 2) --end;
  for (std::size_t i = 0; i < end; ++i) {
    const char c = text[i];
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) fields.refuse("precompiled_charsmap", "not base64");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) bytes += static_cast<char>(bits >> (held -= 8) & 0xFF);
  }
  return bytes;
}

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const TokenizerFields& fields)
      : origin_(fields.where("precompiled_charsmap")) {
    const std::string bytes = decode_base64(fields.text("precompiled_charsmap"), fields);
    const auto word = [&](std::size_t at) {
      std::uint32_t value = 0;
      for (std::size_t i = 0; i < 4; ++i)
        value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
      return value;
    };
    if (bytes.size() < 4 || word(0) / 4 > (bytes.size() - 4) / 4 || word(0) < 4)
      bad_input("{}: it is cut short", origin_);
    const std::size_t units = word(0) / 4;
    for (std::size_t i = 0; i < units; ++i) units_.push_back(word(4 + 4 * i));
    texts_ = bytes.substr(4 + 4 * units);
    if (!is_utf8(texts_)) bad_input("{}: its texts are not UTF-8", origin_);
  }

  void apply(NormalizedText& text) const override {
    std::string out;
    out.reserve(text.text.size());
    const std::string_view all = text.text;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = grapheme_end(all, at);
      std::string_view replacement;
      if (end - at < 6 && find(all.substr(at, end - at), replacement)) {
        out += replacement;
        if (at == 0 && replacement.empty()) text.at_start = false;
        at = end;
        continue;
      }
      while (at < end) {
        const std::string_view character = all.substr(at, character_bytes(all[at]));
        const bool found = find(character, replacement);
        out += found ? replacement : character;
        if (at == 0 && found && replacement.empty()) text.at_start = false;
        at += character.size();
      }
    }
    text.text = std::move(out);
  }

 private:
  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
  std::uint32_t unit(std::size_t at) const {
    if (at >= units_.size()) bad_input("{}: its trie points outside itself", origin_);
    return units_[at];
  }

  // What stands for the shortest beginning of `part` that the table has (SentencePiece's readers
  // take that one, and put it in the place of all).
  bool find(std::string_view part, std::string_view& replacement) const {
    std::size_t node = offset(unit(0));
    for (const char byte : part) {
      const auto label = static_cast<unsigned char>(byte);
      if (label == 0) return false;
      node ^= label;
      const std::uint32_t here = unit(node);
      if ((here & (1u << 31 | 0xFF)) != label) return false;
      node ^= offset(here);
      if ((here >> 8 & 1) == 0) continue;
      const std::size_t start = unit(node) & ((1u << 31) - 1);
      if (start > texts_.size() || (start < texts_.size() && is_continuation(texts_[start])))
        bad_input("{}: its trie points outside its texts", origin_);
      const std::size_t end = texts_.find('\0', start);
      replacement = std::string_view(texts_).substr(start, end - start);
      return true;
    }
    return false;
  }

  std::string origin_;
  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<const Normalizer> read_precompiled(const TokenizerFields& fields) {
  return std::make_unique<Precompiled>(fields);
}

}  // namespace ac::text
