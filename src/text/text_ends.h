// Which tokens begin and end a text, from the files beside tokenizer.json.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "text/tokenizer_added.h"

namespace ac::text {

struct TextEnds {
  std::optional<TokenId> begin;
  std::vector<TokenId> end;
};

// generation_config.json, else config.json has ids. tokenizer_config.json or
// special_tokens_map.json name tokens: the one that ends a text counts in any case, as models that
// were tuned for chats often keep the ids of the model that they were made from.
TextEnds read_text_ends(const std::filesystem::path& folder, const TokenTable& tokens);

}  // namespace ac::text
