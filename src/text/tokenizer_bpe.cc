// Byte pair encoding: of all pairs of neighbours that may merge, the one of the first rule, and of
// those the leftmost, until none is left.
#include <algorithm>
#include <array>
#include <cstring>
#include <queue>

#include "base/error.h"
#include "base/text.h"
#include "text/byte_characters.h"
#include "text/tokenizer_model.h"
#include "text/unicode.h"

namespace ac::text {
namespace {

constexpr std::size_t kFewSymbols = 48;  // up to so many, looking through all beats a heap
constexpr std::uint32_t kNoRank = ~0u;

// Which token a pair merges to, and its rule's place among the rules.
class MergeTable {
 public:
  struct Rule {
    std::uint32_t rank = kNoRank;
    TokenId token = -1;
  };
  explicit MergeTable(std::size_t rules) {
    while (slots_.size() < 2 * rules) slots_.resize(2 * slots_.size()), --shift_;
  }
  void put(TokenId left, TokenId right, Rule rule) {
    Slot& slot = slots_[slot_of(key(left, right))];
    slot = {key(left, right), rule};
  }
  Rule find(TokenId left, TokenId right) const { return slots_[slot_of(key(left, right))].rule; }

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Rule rule;
  };
  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    std::size_t at = static_cast<std::size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
    while (slots_[at].key != key && slots_[at].rule.token >= 0) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  std::vector<Slot> slots_ = std::vector<Slot>(16);
  int shift_ = 60;
};

class Bpe : public TokenModel {
 public:
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, BpeOptions options,
      std::string where)
      : vocabulary_(vocabulary),
        options_(std::move(options)),
        where_(std::move(where)),
        merges_(merges.size()) {
    read_merges(merges);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::string character;
      append_utf8(character, kByteCharacters[byte]);
      byte_tokens_[byte] = vocabulary_.find(character).value_or(-1);
      fallback_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    }
    if (options_.unknown) unknown_ = vocabulary_.find(*options_.unknown).value_or(-1);
    cut_words_ = cut_words_ && !options_.bytes && options_.prefix.empty() &&
                 options_.suffix.empty() && vocabulary_.find(kSpaceMark);
  }

  void encode(std::string_view piece, std::vector<TokenId>& out, PieceCache& cache) const override {
    if (options_.ignore_merges && piece.size() > PieceCache::kLongest)
      if (const auto whole = whole_token(piece)) return out.push_back(*whole);
    const auto encode_word = [this](std::string_view word, std::vector<TokenId>& to) {
      if (options_.ignore_merges)
        if (const auto whole = whole_token(word)) return to.push_back(*whole);
      merge(word, to);
    };
    // No rule joins what is before a space to the space: words can be encoded one by one.
    while (cut_words_ && !options_.ignore_merges && piece.size() > kSpaceMark.size()) {
      const std::size_t end = word_end(piece);
      if (end == piece.size()) break;
      cache.tokens(piece.substr(0, end), out, encode_word);
      piece.remove_prefix(end);
    }
    cache.tokens(piece, out, encode_word);
  }

 private:
  static constexpr std::string_view kSpaceMark = "\u2581";

  struct Symbol {
    TokenId token;
    std::int32_t before, after;  // -1: none. A symbol that was merged away has no token.
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t place;
    TokenId token;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  void read_merges(const std::vector<Merge>& merges) {
    constexpr std::size_t kAtOnce = 1024;
    std::vector<std::string_view> texts;
    std::vector<TokenId> ids;
    std::string joined;
    for (std::size_t begin = 0; begin < merges.size(); begin += kAtOnce) {
      const std::size_t end = std::min(begin + kAtOnce, merges.size());
      texts.clear();
      joined.clear();
      std::size_t bytes = 0;
      for (std::size_t i = begin; i < end; ++i)
        bytes += merges[i].left.size() + merges[i].right.size();
      joined.reserve(bytes);  // so that views of it stay
      for (std::size_t i = begin; i < end; ++i) {
        const auto& [left, right] = merges[i];
        if (!right.starts_with(options_.prefix))
          bad_input("{}.merges[{}]: {} does not begin with the prefix {}", where_, i, quote(right),
                    quote(options_.prefix));
        const std::size_t start = joined.size();
        joined.append(left).append(right.substr(options_.prefix.size()));
        texts.insert(texts.end(), {left, right, std::string_view(joined).substr(start)});
        if (right.starts_with(kSpaceMark) && !left.ends_with(kSpaceMark)) cut_words_ = false;
      }
      vocabulary_.find_all(texts, ids);
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] < 0)
          bad_input("{}.merges[{}]: the token {} is not in the vocabulary", where_, begin + i / 3,
                    quote(texts[i]));
      for (std::size_t i = 0; i < ids.size(); i += 3)
        merges_.put(ids[i], ids[i + 1], {static_cast<std::uint32_t>(begin + i / 3), ids[i + 2]});
    }
  }

  // The end of the first word: where a space follows anything but a space.
  static std::size_t word_end(std::string_view piece) {
    std::size_t at = 0;
    while ((at = piece.find(kSpaceMark, at)) != std::string_view::npos) {
      const bool run = at >= kSpaceMark.size() && piece.substr(0, at).ends_with(kSpaceMark);
      if (at > 0 && !run) return at;
      at += kSpaceMark.size();
    }
    return piece.size();
  }

  std::optional<TokenId> whole_token(std::string_view piece) const {
    return options_.bytes ? vocabulary_.find(as_byte_characters(piece)) : vocabulary_.find(piece);
  }

  // The tokens of the characters.
  void split(std::string_view word, std::vector<TokenId>& tokens) const {
    if (options_.bytes) {
      const std::size_t start = tokens.size();
      for (const char byte : word) {
        const TokenId token = byte_tokens_[static_cast<unsigned char>(byte)];
        if (token < 0) {  // a vocabulary without all bytes
          tokens.resize(start);
          return split_characters(as_byte_characters(word), tokens);
        }
        tokens.push_back(token);
      }
      return;
    }
    split_characters(word, tokens);
  }

  void split_characters(std::string_view word, std::vector<TokenId>& tokens) const {
    bool unknown = false;  // one is due
    std::string spelled;
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t end = at + character_bytes(word[at]);
      std::string_view character = word.substr(at, end - at);
      const bool first = at == 0, last = end == word.size();
      at = end;
      if ((!first && !options_.prefix.empty()) || (last && !options_.suffix.empty())) {
        spelled.assign(first ? "" : options_.prefix).append(character);
        if (last) spelled += options_.suffix;
        character = spelled;
      }
      split_character(character, tokens, unknown);
    }
    if (unknown) tokens.push_back(unknown_);
  }

  void split_character(std::string_view character, std::vector<TokenId>& tokens,
                       bool& unknown) const {
    if (const auto token = vocabulary_.find(character)) {
      if (unknown) tokens.push_back(unknown_);
      unknown = false;
      tokens.push_back(*token);
      return;
    }
    if (options_.byte_fallback) {
      const auto token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
      if (std::all_of(character.begin(), character.end(), [&](char c) { return token(c) >= 0; })) {
        for (const char byte : character) tokens.push_back(token(byte));
        return;
      }
    }
    if (!options_.unknown) return;
    if (unknown_ < 0)
      bad_input("{}.unk_token: {} is not in the vocabulary, and the text needs it", where_,
                quote(*options_.unknown));
    if (unknown && !options_.fuse_unknown) tokens.push_back(unknown_);
    unknown = true;
  }

  void merge(std::string_view word, std::vector<TokenId>& out) const {
    const std::size_t start = out.size();
    split(word, out);
    if (out.size() - start <= kFewSymbols)
      merge_few(out, start);
    else
      merge_many(out, start);
  }

  void merge_few(std::vector<TokenId>& tokens, std::size_t start) const {
    std::size_t count = tokens.size() - start;
    TokenId* const token = tokens.data() + start;
    std::array<MergeTable::Rule, kFewSymbols> rule;  // of each symbol and the one after it
    for (std::size_t i = 0; i + 1 < count; ++i) rule[i] = merges_.find(token[i], token[i + 1]);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i)
        if (rule[i].rank < rule[best].rank) best = i;
      if (rule[best].rank == kNoRank) break;
      token[best] = rule[best].token;
      std::copy(token + best + 2, token + count, token + best + 1);
      std::copy(rule.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                rule.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                rule.begin() + static_cast<std::ptrdiff_t>(best));
      --count;
      if (best > 0) rule[best - 1] = merges_.find(token[best - 1], token[best]);
      if (best + 1 < count) rule[best] = merges_.find(token[best], token[best + 1]);
    }
    tokens.resize(start + count);
  }

  void merge_many(std::vector<TokenId>& tokens, std::size_t start) const {
    const auto count = static_cast<std::int32_t>(tokens.size() - start);
    std::vector<Symbol> symbols;
    symbols.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i)
      symbols.push_back(
          {tokens[start + static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    const auto symbol = [&](std::int32_t at) -> Symbol& {
      return symbols[static_cast<std::size_t>(at)];
    };
    std::vector<Candidate> all;
    const auto candidate = [&](std::int32_t at, auto&& put) {
      const MergeTable::Rule rule = merges_.find(symbol(at).token, symbol(symbol(at).after).token);
      if (rule.rank != kNoRank) put(Candidate{rule.rank, at, rule.token});
    };
    for (std::int32_t i = 0; i + 1 < count; ++i)
      candidate(i, [&](Candidate one) { all.push_back(one); });
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue({},
                                                                                 std::move(all));
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& left = symbol(best.place);
      if (left.token < 0 || left.after < 0) continue;
      Symbol& right = symbol(left.after);
      // Has either been merged since?
      if (merges_.find(left.token, right.token).token != best.token) continue;
      left.token = best.token;
      left.after = right.after;
      right.token = -1;
      if (left.after >= 0) symbol(left.after).before = best.place;
      const auto put = [&](Candidate one) { queue.push(one); };
      if (left.before >= 0) candidate(left.before, put);
      if (left.after >= 0) candidate(best.place, put);
    }
    tokens.resize(start);
    for (std::int32_t at = 0; at >= 0; at = symbol(at).after) tokens.push_back(symbol(at).token);
  }

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  std::string where_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_tokens_{}, fallback_{};  // -1: none
  TokenId unknown_ = -1;
  bool cut_words_ = true;
};

}  // namespace

std::unique_ptr<const TokenModel> make_bpe(const Vocabulary& vocabulary,
                                           const std::vector<Merge>& merges, BpeOptions options,
                                           std::string where) {
  return std::make_unique<Bpe>(vocabulary, merges, std::move(options), std::move(where));
}

}  // namespace ac::text
