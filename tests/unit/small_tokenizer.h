// A tokenizer of a few tokens, without merges.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/temporary_folder.h"
#include "text/tokenizer.h"

namespace ac::test {

// Special tokens follow the others; the first of them ends a text.
inline text::Tokenizer small_tokenizer(const std::vector<std::string>& tokens,
                                       const std::vector<std::string>& special,
                                       const Json& decoder = {{"type", "Fuse"}}) {
  Json vocabulary = Json::object(), added = Json::array();
  for (const std::string& token : tokens) vocabulary[token] = vocabulary.size();
  for (const std::string& token : special)
    added.push_back({{"id", tokens.size() + added.size()},
                     {"content", token},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  const Json file{{"version", "1.0"},
                  {"added_tokens", added},
                  {"normalizer", nullptr},
                  {"pre_tokenizer", nullptr},
                  {"post_processor", nullptr},
                  {"decoder", decoder},
                  {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  const TemporaryFolder folder;
  write_file(folder.path() / "tokenizer.json", file.dump());
  write_file(folder.path() / "generation_config.json",
             Json{{"eos_token_id", tokens.size()}}.dump());
  return text::Tokenizer::load(folder.path());
}

}  // namespace ac::test
