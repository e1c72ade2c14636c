// The models of tokenizer.json: what makes tokens of a piece of text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/piece_cache.h"
#include "text/vocabulary.h"

namespace ac::text {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the tokens of a piece, which is not empty and valid UTF-8. The cache is this model's.
  virtual void encode(std::string_view piece, std::vector<TokenId>& out,
                      PieceCache& cache) const = 0;
};

struct BpeOptions {
  std::optional<std::string> unknown;
  std::string prefix, suffix;  // of a character that is not a word's first one; of its last one
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
  // The pieces are bytes, each of which stands for its character of the byte-level alphabet.
  bool bytes = false;
};
struct Merge {
  std::string_view left, right;
};
// The vocabularies must outlive the models. `where` names the model: "FILE: model".
std::unique_ptr<const TokenModel> make_bpe(const Vocabulary& vocabulary,
                                           const std::vector<Merge>& merges, BpeOptions options,
                                           std::string where);

// The vocabulary's tokens from 0 on have these scores. Of tokens with the same text, which the
// vocabulary cannot hold, the last one counts.
struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
};
std::unique_ptr<const TokenModel> make_unigram(const Vocabulary& vocabulary,
                                               std::vector<double> scores, UnigramOptions options,
                                               std::string where);

struct WordPieceOptions {
  std::string unknown, prefix;
  std::size_t longest = 100;  // characters of a word that is not unknown at once
};
std::unique_ptr<const TokenModel> make_word_piece(const Vocabulary& vocabulary,
                                                  WordPieceOptions options, std::string where);

// Each piece is one token.
std::unique_ptr<const TokenModel> make_word_level(const Vocabulary& vocabulary, std::string unknown,
                                                  std::string where);

}  // namespace ac::text
