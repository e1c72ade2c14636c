// From a conversation to the text that a model was trained on: the chat template of its tokenizer.
// The language is Jinja as transformers runs it (docs/manual/chat-templates.md); src/text/template
// is the interpreter.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/template/meter.h"

namespace ac {

namespace jinja {
struct Syntax;
}

class ChatTemplate {
 public:
  // `origin` names the template in errors. `variables` are defined where an input does not have
  // them: bos_token and its like.
  ChatTemplate(std::string_view source, std::string origin, Json variables = Json::object());

  // The prompt. The input is an object: `messages`, `tools`, `documents`, `add_generation_prompt`
  // and whatever else the template reads. May be called from several threads at once. An input
  // that the template refuses is a failed job, and the error has the template's own words.
  std::string render(const Json& input, const jinja::Limits& limits = {}) const;
  const std::string& source() const { return source_; }

 private:
  std::shared_ptr<const jinja::Syntax> syntax_;
  std::string source_, origin_;
  Json variables_;
};

// The templates that a model comes with, which have names.
class ChatTemplates {
 public:
  // A file with a template, a tokenizer_config.json, or a folder that has, in this order of
  // precedence: chat_template.jinja and additional_chat_templates/NAME.jinja; the `chat_template`
  // of tokenizer_config.json; chat_template.json.
  static ChatTemplates load(const std::filesystem::path& path);

  // The template of that name. Without a name: `tool_use` where there are tools and there is such
  // a template, else `default`.
  ChatTemplate choose(const std::optional<std::string>& name, bool has_tools) const;

 private:
  struct Source {
    std::string text, origin;
  };
  void read_folder(const std::filesystem::path& folder);
  void add_from_config(const Json& config, const std::string& origin);

  std::string origin_;
  std::map<std::string, Source> sources_;
  Json variables_ = Json::object();
};

}  // namespace ac
