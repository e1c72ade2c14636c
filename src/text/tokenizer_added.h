// Tokens that are found in a text before any model sees it: <|im_end|> and the like.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/trie.h"
#include "text/vocabulary.h"

namespace ac::text {

struct AddedToken {
  TokenId id = 0;
  std::string text;          // as it is found, and as it is decoded
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalized text
  bool special = false;
};

class AddedTokens {
 public:
  // A part of a text: a token, or what is between tokens.
  struct Part {
    std::size_t begin, end;
    const AddedToken* token = nullptr;
  };

  AddedTokens() = default;
  // Those that are `normalized`, or those that are not.
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized);
  // Cuts a text. Special tokens are text like any other, unless `special`.
  std::vector<Part> split(std::string_view text, bool special) const;

 private:
  std::vector<AddedToken> tokens_;
  Trie trie_;
};

// All tokens: the model's, and those that were added to it, which go before.
class TokenTable {
 public:
  TokenTable() = default;
  // `texts`: by which the added ones are known, which may be other than what they are decoded to.
  TokenTable(const Vocabulary& model, const std::vector<AddedToken>& added,
             const std::vector<std::string>& texts);

  bool has(TokenId id) const { return decoded_.contains(id) || model_->has(id); }
  // What the token is decoded to.
  std::string_view text(TokenId id) const;
  std::optional<TokenId> find(std::string_view text) const;
  TokenId end() const { return end_; }

 private:
  const Vocabulary* model_ = nullptr;
  std::unordered_map<TokenId, std::string> decoded_;
  std::unordered_map<std::string, TokenId> added_;
  TokenId end_ = 0;
};

}  // namespace ac::text
