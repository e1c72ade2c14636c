// The texts of a model: its tokenizer and chat template, and how its makers want tokens to be
// chosen. From a text or a conversation to token ids. May be used by several threads at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"
#include "text/trie.h"

namespace ac {

class ModelText {
 public:
  struct Source {
    std::filesystem::path folder;         // has a tokenizer.json
    std::filesystem::path chat_template;  // a file instead of the folder's; empty: none
    Json variables = Json::object();      // of the template
  };
  explicit ModelText(Source source);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::GenerationConfig& generation_config() const { return config_; }
  std::string generation_config_file() const;  // for messages
  // That the tokens are those of a model with so many.
  void check_vocabulary(std::int64_t vocabulary) const;

  // An error (bad_input) says so if the model has no chat template.
  void require_chat() const { templates(); }
  // As the model's maker wrote it: of conversations with tools, or without.
  const std::string& chat_template(bool has_tools) const;
  bool has_chat_template() const { return templates_.has_value(); }

  struct ChatPrompt {
    std::vector<std::int64_t> ids;
    bool thinking = false;  // the answer begins with reasoning: the prompt has opened it
    bool thought = false;   // the prompt has closed it: there is no more
  };
  // Of a conversation, up to where the answer begins. `input` has messages, perhaps tools, and
  // further variables. A special token that is written in any of them is text: nobody ends their
  // turn by what they say. If it goes on, the answer continues the last message, which is text;
  // an error (bad_input) says so if the template does not show that as it is.
  ChatPrompt chat_prompt(Json input, bool goes_on = false) const;
  // The same as text, in which special tokens are special tokens.
  std::string chat_text(const Json& input) const;
  // Of plain text, with what the tokenizer puts around it.
  std::vector<std::int64_t> ids_of_text(std::string_view text, bool parse_special) const;

 private:
  const ChatTemplates& templates() const;
  const ChatTemplate& template_for(bool has_tools) const;
  void mark(std::string& text) const;
  void mark_all(Json& value) const;
  void add_ids(const std::string& prompt, const std::vector<std::size_t>& plain,
               std::vector<std::int64_t>& ids) const;

  std::filesystem::path folder_;
  Json variables_;
  text::Tokenizer tokenizer_;
  text::Trie special_;  // the texts of special tokens
  text::GenerationConfig config_;
  std::optional<ChatTemplates> templates_;
  std::optional<ChatTemplate> plain_, with_tools_;
  std::string why_no_template_;
};

}  // namespace ac
