#include "text/chat_template.h"

#include <array>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "gguf/gguf_file.h"
#include "text/template/characters.h"
#include "text/template/from_json.h"
#include "text/template/parser.h"
#include "text/template/render.h"
#include "text/text_files.h"

namespace ac {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
constexpr std::array kReasoning = {"reasoning_content", "thinking", "reasoning"};

// A message as templates expect it: without the keys whose value is null, and with its reasoning
// under the names that templates read.
Json prepared(const Json& message) {
  Json result = Json::object();
  const Json* reasoning = nullptr;
  for (const char* name : kReasoning)
    if (reasoning == nullptr && message.contains(name) && !message[name].is_null())
      reasoning = &message[name];
  if (reasoning != nullptr) result["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) result[key] = value;
  if (reasoning != nullptr) result["reasoning_content"] = *reasoning;
  return result;
}

// On one line, whatever the template raises.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char character : text) {
    if (character == '\n')
      line += "\\n";
    else if (static_cast<unsigned char>(character) >= 0x20 && character != 0x7f)
      line += character;
  }
  return line;
}

std::string at(const std::string& origin, const jinja::Position& position,
               const std::string& message) {
  return fmt::format("{}:{}:{}: {}", origin, position.line, position.column, one_line(message));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string origin, Json variables)
    : source_(source), origin_(std::move(origin)), variables_(std::move(variables)) {
  if (!jinja::is_valid_utf8(source)) bad_input("{}: not UTF-8", origin_);
  try {
    syntax_ = std::make_shared<const jinja::Syntax>(jinja::parse(source));
  } catch (const jinja::SyntaxError& error) {
    bad_input("{}", at(origin_, error.at, error.message));
  }
}

std::string ChatTemplate::render(const Json& input, const jinja::Limits& limits) const {
  if (!input.is_object()) bad_input("the input of a chat template must be a JSON object");
  Json whole = variables_;
  for (const char* name : {"tools", "documents"}) whole[name] = nullptr;
  whole["add_generation_prompt"] = false;
  for (const auto& [key, value] : input.items()) whole[key] = value;
  if (const auto messages = whole.find("messages"); messages != whole.end()) {
    if (!messages->is_array()) bad_input("the input's \"messages\" must be a list");
    for (Json& message : *messages) {
      if (!message.is_object()) bad_input("the input's \"messages\" must be objects");
      message = prepared(message);
    }
  }
  try {
    return jinja::render(*syntax_, [&whole] { return jinja::from_json(whole); }, limits);
  } catch (const jinja::RenderError& error) {
    job_failed("{}", at(origin_, error.at, error.message));
  }
}

ChatTemplates ChatTemplates::load(const std::filesystem::path& path) {
  ChatTemplates result;
  result.origin_ = path.string();
  if (std::filesystem::is_directory(path) || is_gguf(path)) {
    result.read_folder(path);
  } else if (path.extension() == ".json") {
    result.add_from_config(read_json(path), path.string());
  } else {
    result.sources_["default"] = {read_file(path, kMaxBytes), path.string()};
  }
  if (result.sources_.empty())
    bad_input(
        "{}: no chat template (chat_template.jinja, or \"chat_template\" in "
        "tokenizer_config.json): give a template as a file",
        path.string());
  return result;
}

void ChatTemplates::read_folder(const std::filesystem::path& folder) {
  const std::filesystem::path single = folder / "chat_template.jinja";
  if (std::filesystem::exists(single))
    sources_["default"] = {read_file(single, kMaxBytes), single.string()};
  const std::filesystem::path more = folder / "additional_chat_templates";
  if (std::filesystem::is_directory(more))
    for (const auto& entry : std::filesystem::directory_iterator(more))
      if (entry.path().extension() == ".jinja")
        sources_[entry.path().stem().string()] = {read_file(entry.path(), kMaxBytes),
                                                  entry.path().string()};
  const bool files = !sources_.empty();
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json"}) {
    const auto file = text::read_text_file(folder, name, JsonLimits{}.bytes);
    if (!file) continue;
    const std::map<std::string, Source> before = sources_;
    add_from_config(parse_json(file->text, file->origin), file->origin);
    if (files || !before.empty()) sources_ = before;
  }
}

void ChatTemplates::add_from_config(const Json& config, const std::string& origin) {
  if (!config.is_object()) bad_input("{}: not a JSON object", origin);
  for (const char* kind : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
    const std::string name = std::string(kind) + "_token";
    const auto token = config.find(name);
    if (token == config.end() || variables_.contains(name)) continue;
    if (token->is_string())
      variables_[name] = *token;
    else if (token->is_object() && token->contains("content"))
      variables_[name] = (*token)["content"];
  }
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  const auto add = [&](const std::string& name, const Json& text) {
    if (!text.is_string()) bad_input("{}: chat_template {} is no string", origin, quote(name));
    sources_[name] = {text.get<std::string>(), origin + " (chat_template)"};
  };
  if (found->is_array()) {
    for (const Json& one : *found) {
      if (!one.is_object() || !one.contains("name") || !one["name"].is_string() ||
          !one.contains("template"))
        bad_input("{}: a chat_template in a list must have a name and a template", origin);
      add(one["name"].get<std::string>(), one["template"]);
    }
  } else if (found->is_object()) {
    for (const auto& [name, text] : found->items()) add(name, text);
  } else {
    add("default", *found);
  }
}

ChatTemplate ChatTemplates::choose(const std::optional<std::string>& name, bool has_tools) const {
  std::string wanted = name.value_or("default");
  if (!name && has_tools && sources_.count("tool_use") > 0) wanted = "tool_use";
  const auto found = sources_.find(wanted);
  if (found == sources_.end()) {
    std::string names;
    for (const auto& [known, source] : sources_)
      names += (names.empty() ? "" : ", ") + quote(known);
    bad_input("{}: no chat template is called {}; there is {}", origin_, quote(wanted), names);
  }
  return ChatTemplate(found->second.text, found->second.origin, variables_);
}

}  // namespace ac
