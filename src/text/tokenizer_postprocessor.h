// Which special tokens go around a text: the post-processors of tokenizer.json.
#pragma once

#include <optional>
#include <vector>

#include "text/tokenizer_added.h"
#include "text/tokenizer_fields.h"

namespace ac::text {

// The text's tokens, where there is no token.
using Template = std::vector<std::optional<TokenId>>;

// In order; a Sequence is what is in it. Ids are of `tokens`.
void read_post_processors(const TokenizerFields& fields, const TokenTable& tokens,
                          std::vector<Template>& templates);

// Only the text's places count where special tokens are not wanted.
std::vector<TokenId> put_around(const std::vector<Template>& templates, std::vector<TokenId> tokens,
                                bool special);

}  // namespace ac::text
