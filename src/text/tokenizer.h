// Text to tokens and back, as HuggingFace's tokenizer.json says. A tokenizer may be used by several
// threads at once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ac::text {

struct EncodeOptions {
  bool add_special = false;  // put the special tokens around the text that the tokenizer prescribes
  bool parse_special = false;  // a special token's text stands for the token; else it is only text
};

class Tokenizer {
 public:
  // From a folder with tokenizer.json, and perhaps generation_config.json, config.json,
  // tokenizer_config.json and special_tokens_map.json, which say what begins and ends a text; or
  // from such a file itself.
  static Tokenizer load(const std::filesystem::path& folder_or_file);
  // From the text of a tokenizer.json alone; `origin` names it in errors.
  static Tokenizer parse(const std::string& text, const std::string& origin);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Bytes that are not UTF-8 are read as U+FFFD.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  // An id that no token has is an error.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

  std::optional<TokenId> id(std::string_view token) const;
  bool has(TokenId id) const;
  bool is_special(TokenId id) const;
  std::string_view token(TokenId id) const;  // as the vocabulary spells it
  std::size_t size() const;                  // one more than the largest id
  // What the token adds to a text in whose middle it stands, perhaps a part of a character.
  // Nothing: that depends on its neighbours.
  std::optional<std::string> bytes(TokenId id) const;

  // What begins a text, and what ends one; where no file says, none.
  std::optional<TokenId> begin_of_text() const;
  const std::vector<TokenId>& end_of_text() const;

 private:
  friend class Detokenizer;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes tokens as they come. What it gives is always whole characters, and all of it together is
// what decode() gives: what later tokens may change is held back.
class Detokenizer {
 public:
  // The tokenizer must outlive it. `in_middle`: other tokens stand before the first one that is
  // pushed. What it gives is the text's own once it is settled: once these cannot matter any more.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool in_middle = false);
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  bool is_settled() const;

  std::string push(TokenId id);
  std::string finish();  // what was held back; nothing may be pushed after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ac::text
