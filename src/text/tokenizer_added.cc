#include "text/tokenizer_added.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace ac::text {
namespace {

bool ends_in_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = character_before(text, text.size());
  return is_word(next_character(text, at));
}

bool begins_with_word(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && is_word(next_character(text, at));
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens)
    if (token.normalized == normalized && !token.text.empty()) tokens_.push_back(token);
  std::vector<std::pair<std::string_view, std::int32_t>> texts;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    texts.emplace_back(tokens_[i].text, static_cast<std::int32_t>(i));
  trie_ = Trie(std::move(texts));
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, bool special) const {
  std::vector<Part> parts;
  std::size_t done = 0;  // up to here, all is in parts
  for (std::size_t at = 0; !trie_.empty() && at < text.size();) {
    // The leftmost one, and of those the longest.
    std::size_t bytes = 0;
    const AddedToken* token = nullptr;
    if (trie_.may_begin(text[at]))
      trie_.prefixes(text.substr(at), [&](std::size_t found, std::int32_t which) {
        bytes = found;
        token = &tokens_[static_cast<std::size_t>(which)];
      });
    if (!token) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + bytes;
    at = end;
    if (token->special && !special) continue;
    if (token->single_word &&
        (ends_in_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
      continue;
    while (token->lstrip && begin > done) {
      const std::size_t before = character_before(text, begin);
      std::size_t next = before;
      if (!is_white_space(next_character(text, next))) break;
      begin = before;
    }
    while (token->rstrip && end < text.size()) {
      std::size_t next = end;
      if (!is_white_space(next_character(text, next))) break;
      end = next;
    }
    // A token whose beginning an earlier one took with the space after it. Of one that takes the
    // space before it nothing may be left.
    if (token->lstrip && end <= done) continue;
    begin = std::max(begin, done);
    if (done < begin) parts.push_back({done, begin});
    parts.push_back({begin, end, token});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size()});
  return parts;
}

TokenTable::TokenTable(const Vocabulary& model, const std::vector<AddedToken>& added,
                       const std::vector<std::string>& texts)
    : model_(&model), end_(model.end()) {
  for (std::size_t i = 0; i < added.size(); ++i) {
    decoded_.emplace(added[i].id, added[i].text);
    added_.emplace(texts[i], added[i].id);
    end_ = std::max(end_, added[i].id + 1);
  }
}

std::string_view TokenTable::text(TokenId id) const {
  const auto found = decoded_.find(id);
  return found == decoded_.end() ? model_->text(id) : std::string_view(found->second);
}

std::optional<TokenId> TokenTable::find(std::string_view text) const {
  const auto found = added_.find(std::string(text));
  return found == added_.end() ? model_->find(text) : std::optional(found->second);
}

}  // namespace ac::text
