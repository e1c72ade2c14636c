#include "advise/wire.h"

#include <fmt/format.h>

namespace ac {
namespace {

Json user_message(const Prompt& prompt) {
  return Json::array({{{"role", "user"}, {"content", prompt.text}}});
}

Reply with_text(Reply reply, const std::string& why_empty) {
  if (reply.text.empty()) reply.failure = "no text in the response: " + why_empty;
  return reply;
}

// A number that a response may lack, or have as null.
std::int64_t count(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_integer()
             ? object[key].get<std::int64_t>()
             : 0;
}

std::string text(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

Reply read_anthropic(const Json& response) {
  Reply reply;
  std::string prose;
  for (const Json& block : response.at("content")) {
    const std::string type = text(block, "type");
    if (type == "tool_use" && block.contains("input")) reply.text = block["input"].dump();
    if (type == "text") prose += text(block, "text");
  }
  if (reply.text.empty()) reply.text = prose;
  reply.model = text(response, "model");
  const Json usage = response.value("usage", Json::object());
  for (const char* key : {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"})
    reply.input_tokens += count(usage, key);
  reply.output_tokens = count(usage, "output_tokens");
  return with_text(std::move(reply), "it stopped for " + text(response, "stop_reason"));
}

Reply read_openai(const Json& response) {
  const Json& choice = response.at("choices").at(0);
  const Json& message = choice.at("message");
  Reply reply;
  reply.text = text(message, "content");
  reply.model = text(response, "model");
  const Json usage = response.value("usage", Json::object());
  reply.input_tokens = count(usage, "prompt_tokens");
  reply.output_tokens = count(usage, "completion_tokens");
  const std::string refusal = text(message, "refusal");
  return with_text(std::move(reply), refusal.empty()
                                         ? "it stopped for " + text(choice, "finish_reason")
                                         : "it refused: " + refusal);
}

}  // namespace

Wire anthropic_wire(const std::string& model, const std::string& url, const std::string& key) {
  Wire wire;
  wire.url = url + "/v1/messages";
  wire.headers = {"x-api-key: " + key, "anthropic-version: 2023-06-01"};
  wire.request = [model](const Prompt& prompt, int max_tokens, bool structured) {
    Json body{{"model", model}, {"max_tokens", max_tokens}, {"messages", user_message(prompt)}};
    if (structured) {
      const ReplyForm& form = *prompt.form;
      body["tools"] = Json::array(
          {{{"name", form.name}, {"description", form.purpose}, {"input_schema", form.schema}}});
      body["tool_choice"] = {{"type", "tool"}, {"name", form.name}};
    }
    return body;
  };
  wire.read = read_anthropic;
  return wire;
}

Wire openai_wire(const std::string& model, const std::string& url, const std::string& key) {
  Wire wire;
  wire.url = url + "/chat/completions";
  if (!key.empty()) wire.headers = {"Authorization: Bearer " + key};
  // OpenAI's newer models refuse the older name of the limit; many other servers know no other.
  const char* limit = url == kOpenAiUrl ? "max_completion_tokens" : "max_tokens";
  wire.request = [model, limit](const Prompt& prompt, int max_tokens, bool structured) {
    Json body{{"model", model}, {limit, max_tokens}, {"messages", user_message(prompt)}};
    if (structured)
      body["response_format"] = {
          {"type", "json_schema"},
          {"json_schema",
           {{"name", prompt.form->name}, {"strict", true}, {"schema", prompt.form->schema}}}};
    return body;
  };
  wire.read = read_openai;
  return wire;
}

}  // namespace ac
