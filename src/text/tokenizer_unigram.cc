// Unigram: the tokens of the largest sum of scores.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "text/tokenizer_model.h"
#include "text/trie.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score

class Unigram : public TokenModel {
 public:
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options,
          std::string where)
      : vocabulary_(vocabulary),
        scores_(std::move(scores)),
        options_(options),
        where_(std::move(where)) {
    std::vector<std::pair<std::string_view, TokenId>> texts;
    double least = std::numeric_limits<double>::infinity();
    for (TokenId id = 0; static_cast<std::size_t>(id) < scores_.size(); ++id) {
      if (!vocabulary.text(id).empty()) texts.emplace_back(vocabulary.text(id), id);
      least = std::min(least, scores_[static_cast<std::size_t>(id)]);
    }
    unknown_score_ = least - kUnknownPenalty;
    trie_ = Trie(std::move(texts));
    for (std::size_t byte = 0; byte < 256; ++byte)
      fallback_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }

  void encode(std::string_view piece, std::vector<TokenId>& out, PieceCache& cache) const override {
    cache.tokens(piece, out,
                 [this](std::string_view text, std::vector<TokenId>& to) { best(text, to); });
  }

 private:
  // The best way to the end of a token.
  struct Node {
    double score = 0;
    TokenId token = -1;  // -1: not reached yet
    std::size_t start = 0;
  };

  void best(std::string_view text, std::vector<TokenId>& out) const {
    std::vector<Node> nodes(text.size() + 1);
    for (std::size_t at = 0; at < text.size(); at += character_bytes(text[at])) {
      const double before = nodes[at].score;
      const std::size_t character = character_bytes(text[at]);
      const auto reach = [&](std::size_t bytes, TokenId token, double score) {
        Node& node = nodes[at + bytes];
        if (node.token < 0 || before + score > node.score) node = {before + score, token, at};
      };
      bool alone = false;
      trie_.prefixes(text.substr(at), [&](std::size_t bytes, TokenId token) {
        reach(bytes, token, scores_[static_cast<std::size_t>(token)]);
        alone = alone || bytes == character;
      });
      if (!alone) reach(character, unknown(), unknown_score_);
    }
    // From the end; neighbours that are unknown are one.
    std::vector<std::pair<std::size_t, std::size_t>> spans;
    bool fusing = false;
    for (std::size_t end = text.size(); end > 0; end = nodes[end].start) {
      const Node& node = nodes[end];
      const bool is_unknown = options_.unknown && node.token == *options_.unknown;
      if (is_unknown && fusing)
        spans.back().first = node.start;
      else
        spans.emplace_back(node.start, end);
      fusing = is_unknown;
    }
    for (auto span = spans.rbegin(); span != spans.rend(); ++span)
      put(text.substr(span->first, span->second - span->first), out);
  }

  void put(std::string_view text, std::vector<TokenId>& out) const {
    if (const auto token = vocabulary_.find(text)) return out.push_back(*token);
    const auto token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
    if (options_.byte_fallback &&
        std::all_of(text.begin(), text.end(), [&](char c) { return token(c) >= 0; })) {
      for (const char byte : text) out.push_back(token(byte));
      return;
    }
    out.push_back(unknown());
  }

  TokenId unknown() const {
    if (!options_.unknown) bad_input("{}.unk_id: missing, and the text needs it", where_);
    return *options_.unknown;
  }

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  std::string where_;
  Trie trie_;
  double unknown_score_ = 0;
  std::array<TokenId, 256> fallback_{};  // -1: none
};

}  // namespace

std::unique_ptr<const TokenModel> make_unigram(const Vocabulary& vocabulary,
                                               std::vector<double> scores, UnigramOptions options,
                                               std::string where) {
  return std::make_unique<Unigram>(vocabulary, std::move(scores), options, std::move(where));
}

}  // namespace ac::text
