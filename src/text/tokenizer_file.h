// Reads tokenizer.json. The vocabulary and the merges, which are nearly all of it, go straight into
// tables; the rest is small.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_decoder.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_normalizer.h"
#include "text/tokenizer_postprocessor.h"
#include "text/tokenizer_pretokenizer.h"

namespace ac::text {

struct TokenizerParts {
  std::string origin;  // the file's name
  std::vector<AddedToken> added;
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  // The model's own tokens; it refers to them.
  std::unique_ptr<Vocabulary> model_tokens = std::make_unique<Vocabulary>();
  std::unique_ptr<const TokenModel> model;
  TokenTable tokens;
  std::vector<Template> templates;
  Decoders decoders;
};

TokenizerParts read_tokenizer(const std::filesystem::path& file);
TokenizerParts parse_tokenizer(const std::string& text, const std::string& origin);

}  // namespace ac::text
