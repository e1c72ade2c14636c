// WordPiece: the longest token that a word begins with, then the longest of the rest; a word with a
// rest that begins with none is unknown. And WordLevel, where each word is a token.
#include "base/error.h"
#include "base/text.h"
#include "text/tokenizer_model.h"
#include "text/trie.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

class WordModel : public TokenModel {
 protected:
  WordModel(const Vocabulary& vocabulary, std::string unknown, std::string where)
      : vocabulary_(vocabulary), unknown_(std::move(unknown)), where_(std::move(where)) {}

  TokenId unknown() const {
    const std::optional<TokenId> token = vocabulary_.find(unknown_);
    if (!token)
      bad_input("{}.unk_token: {} is not in the vocabulary, and the text needs it", where_,
                quote(unknown_));
    return *token;
  }

  const Vocabulary& vocabulary_;

 private:
  std::string unknown_, where_;
};

class WordPiece : public WordModel {
 public:
  WordPiece(const Vocabulary& vocabulary, WordPieceOptions options, std::string where)
      : WordModel(vocabulary, options.unknown, std::move(where)), longest_(options.longest) {
    std::vector<std::pair<std::string_view, TokenId>> first, others;
    for (TokenId id = 0; id < vocabulary.end(); ++id) {
      if (!vocabulary.has(id)) continue;
      const std::string_view text = vocabulary.text(id);
      if (!text.empty()) first.emplace_back(text, id);
      if (text.starts_with(options.prefix) && text.size() > options.prefix.size())
        others.emplace_back(text.substr(options.prefix.size()), id);
    }
    first_ = Trie(std::move(first));
    others_ = Trie(std::move(others));
  }

  void encode(std::string_view piece, std::vector<TokenId>& out, PieceCache& cache) const override {
    cache.tokens(piece, out, [this](std::string_view word, std::vector<TokenId>& to) {
      const std::size_t before = to.size();
      if (count_characters(word) <= longest_ && pieces(word, to)) return;
      to.resize(before);
      to.push_back(unknown());
    });
  }

 private:
  bool pieces(std::string_view word, std::vector<TokenId>& out) const {
    for (const Trie* trie = &first_; !word.empty(); trie = &others_) {
      std::size_t taken = 0;
      TokenId token = -1;
      trie->prefixes(word, [&](std::size_t bytes, TokenId one) { taken = bytes, token = one; });
      if (token < 0) return false;
      out.push_back(token);
      word.remove_prefix(taken);
    }
    return true;
  }

  std::size_t longest_;
  Trie first_, others_;  // tokens at a word's beginning, and after it, there without their prefix
};

class WordLevel : public WordModel {
 public:
  WordLevel(const Vocabulary& vocabulary, std::string unknown, std::string where)
      : WordModel(vocabulary, std::move(unknown), std::move(where)) {}

  void encode(std::string_view piece, std::vector<TokenId>& out, PieceCache&) const override {
    const std::optional<TokenId> token = vocabulary_.find(piece);
    out.push_back(token ? *token : unknown());
  }
};

}  // namespace

std::unique_ptr<const TokenModel> make_word_piece(const Vocabulary& vocabulary,
                                                  WordPieceOptions options, std::string where) {
  return std::make_unique<WordPiece>(vocabulary, std::move(options), std::move(where));
}

std::unique_ptr<const TokenModel> make_word_level(const Vocabulary& vocabulary, std::string unknown,
                                                  std::string where) {
  return std::make_unique<WordLevel>(vocabulary, std::move(unknown), std::move(where));
}

}  // namespace ac::text
