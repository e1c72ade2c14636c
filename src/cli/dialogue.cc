#include "cli/dialogue.h"

#include "base/error.h"
#include "text/think_tags.h"
#include "text/unicode.h"

namespace ac {
namespace {

// A terminal or pipe may give bytes that are not UTF-8, which JSON cannot hold.
Json message_of(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text::repaired_utf8(text)}};
}

}  // namespace

Dialogue::Dialogue(TextModel& model, const std::string& system) : model_(model), system_(system) {
  reset();
}

TextAnswer Dialogue::ask(const std::string& message,
                         const std::function<void(const Shown&)>& on_text,
                         const std::function<bool()>& stopped) {
  Json messages = messages_;
  messages.push_back(message_of("user", message));
  const ModelText::ChatPrompt prompt = model_.text().chat_prompt({{"messages", messages}});
  text::ThinkTags tags(prompt.thinking);
  const auto show = [&](const std::vector<text::ThinkTags::Part>& parts) {
    for (const text::ThinkTags::Part& part : parts) on_text({part.text, part.thinking});
  };
  TextAnswer answer = model_.answerer().answer(
      model_.request(prompt.ids), [&](const TextPiece& piece) { show(tags.push(piece.text)); },
      stopped);
  show(tags.finish());
  if (answer.ids.empty() && answer.finish == "interrupted") return answer;
  messages.push_back(message_of("assistant", answer.text));
  messages_ = std::move(messages);
  return answer;
}

void Dialogue::reset() {
  messages_ = Json::array();
  if (!system_.empty()) messages_.push_back(message_of("system", system_));
}

void Dialogue::set_system(const std::string& text) {
  if (!system_.empty()) messages_.erase(0);
  system_ = text;
  if (!system_.empty()) messages_.insert(messages_.begin(), message_of("system", system_));
}

void Dialogue::load(const Json& saved, const std::string& origin) {
  if (!saved.is_object() || !saved.contains("messages") || !saved["messages"].is_array())
    bad_input("{}: no saved chat: expected {{\"messages\": [...]}}", origin);
  for (const Json& message : saved["messages"])
    for (const char* key : {"role", "content"})
      if (!message.is_object() || !message.contains(key) || !message[key].is_string())
        bad_input("{}: no saved chat: a message has no text that is called {}", origin, key);
  messages_ = saved["messages"];
  const bool has_system = !messages_.empty() && messages_[0]["role"] == "system";
  system_ = has_system ? messages_[0]["content"].get<std::string>() : "";
}

}  // namespace ac
