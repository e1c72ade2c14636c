// The tokenizer and chat template of a GGUF file, as HuggingFace's files say them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "gguf/gguf_file.h"

namespace ac {

// tokenizer.json. A kind of tokenizer that is not known is an error (bad_input) that names it.
std::string gguf_tokenizer(const GgufFile& file);
// tokenizer_config.json: the chat template, and what special tokens are for.
Json gguf_tokenizer_config(const GgufFile& file);
// The tokens that end an answer.
std::vector<std::int64_t> gguf_end_tokens(const GgufFile& file);

}  // namespace ac
