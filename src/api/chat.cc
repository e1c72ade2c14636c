// OpenAI's /v1/chat/completions.
#include <map>

#include "api/asking.h"
#include "text/unicode.h"

namespace ac::api {
namespace {

Json logprob_of(const text::Tokenizer& tokenizer, std::int64_t token, double logprob) {
  const auto id = static_cast<text::TokenId>(token);
  const std::string text =
      tokenizer.has(id) ? tokenizer.decode(std::vector<text::TokenId>{id}, false) : std::string();
  Json bytes;  // null: a part of a character
  if (text.find(text::kReplacementCharacter) == std::string::npos) {
    bytes = Json::array();
    for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", text}, {"logprob", logprob}, {"bytes", bytes}};
}

class ChatWriter : public Writer {
 public:
  ChatWriter(const text::Tokenizer& tokenizer, bool usage, bool logprobs)
      : tokenizer_(tokenizer), usage_(usage), logprobs_(logprobs) {}

  Json whole(const Reply& reply) const override {
    Json result = head(reply, "chat.completion");
    result["choices"] = Json::array();
    for (std::size_t i = 0; i < reply.choices.size(); ++i) {
      const Choice& choice = reply.choices[i];
      const bool silent = choice.text.empty() && !choice.calls.empty();
      Json message{{"role", "assistant"}, {"content", silent ? Json() : Json(choice.text)}};
      if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
      for (const Call& call : choice.calls) message["tool_calls"].push_back(whole_call(call));
      result["choices"].push_back({{"index", i},
                                   {"message", message},
                                   {"logprobs", logprobs_of(choice, 0)},
                                   {"finish_reason", finish_of(choice)}});
    }
    result["usage"] = usage_of(reply);
    return result;
  }

  std::string begin(const Reply& reply) override {
    std::string events;
    sent_.resize(reply.choices.size());
    for (std::size_t i = 0; i < reply.choices.size(); ++i)
      events += chunk(reply, i, {{"role", "assistant"}, {"content", ""}});
    return events;
  }
  std::string part(const Reply& reply, std::size_t choice, const Part& part) override {
    const std::vector<Call>& calls = reply.choices[choice].calls;
    switch (part.kind) {
      case Part::Kind::text:
        return chunk(reply, choice, {{"content", part.text}});
      case Part::Kind::reasoning:
        return chunk(reply, choice, {{"reasoning_content", part.text}});
      case Part::Kind::call: {
        Json call{{"index", calls.size() - 1}};
        Json begun = whole_call(calls.back());
        begun["function"]["arguments"] = "";
        call.update(begun);
        return chunk(reply, choice, {{"tool_calls", Json::array({call})}});
      }
      case Part::Kind::arguments: {
        const Json call{{"index", calls.size() - 1}, {"function", {{"arguments", part.text}}}};
        return chunk(reply, choice, {{"tool_calls", Json::array({call})}});
      }
    }
    return {};
  }
  std::string ended(const Reply& reply, std::size_t choice) override {
    return chunk(reply, choice, Json::object(), finish_of(reply.choices[choice]));
  }
  std::string done(const Reply& reply) override {
    std::string events;
    if (usage_) {
      Json last = head(reply, "chat.completion.chunk");
      last["choices"] = Json::array();
      last["usage"] = usage_of(reply);
      events = event(last);
    }
    return events + "data: [DONE]\n\n";
  }
  std::string failed(const Refusal& refusal) override {
    return event(to_json(refusal, ErrorForm::openai)) + "data: [DONE]\n\n";
  }

 private:
  static Json head(const Reply& reply, const char* object) {
    return {{"id", reply.id},
            {"object", object},
            {"created", reply.created},
            {"model", reply.model},
            {"system_fingerprint", reply.fingerprint}};
  }
  static Json whole_call(const Call& call) {
    return {{"id", call.id},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  }
  static const char* finish_of(const Choice& choice) {
    if (choice.finish == "length") return "length";
    return choice.calls.empty() ? "stop" : "tool_calls";
  }
  static Json usage_of(const Reply& reply) {
    return {{"prompt_tokens", reply.prompt_tokens},
            {"completion_tokens", reply.completion_tokens()},
            {"total_tokens", reply.prompt_tokens + reply.completion_tokens()},
            {"prompt_tokens_details", {{"cached_tokens", reply.cached_tokens}}},
            {"completion_tokens_details", {{"reasoning_tokens", reply.reasoning_tokens()}}}};
  }
  Json logprobs_of(const Choice& choice, std::size_t from) const {
    if (!logprobs_) return nullptr;
    Json content = Json::array();
    for (; from < choice.logprobs.size(); ++from) {
      const Logprob& each = choice.logprobs[from];
      Json entry = logprob_of(tokenizer_, each.token, each.values.own);
      entry["top_logprobs"] = Json::array();
      for (const auto& [token, logprob] : each.values.likeliest)
        entry["top_logprobs"].push_back(logprob_of(tokenizer_, token, logprob));
      content.push_back(entry);
    }
    return {{"content", content}, {"refusal", nullptr}};
  }
  // Of each token, the probability comes with the first text behind it.
  std::string chunk(const Reply& reply, std::size_t i, const Json& delta, Json finish = nullptr) {
    Json chunk = head(reply, "chat.completion.chunk");
    const Choice& choice = reply.choices[i];
    const bool has_more = logprobs_ && sent_[i] < choice.logprobs.size();
    const Json one{{"index", i},
                   {"delta", delta},
                   {"logprobs", has_more ? logprobs_of(choice, sent_[i]) : Json()},
                   {"finish_reason", finish}};
    chunk["choices"] = Json::array({one});
    sent_[i] = choice.logprobs.size();
    if (usage_) chunk["usage"] = nullptr;
    return event(chunk);
  }

  const text::Tokenizer& tokenizer_;
  const bool usage_, logprobs_;
  std::vector<std::size_t> sent_;  // logprobs of each choice
};

Json read_chat_calls(Fields& fields) {
  Json calls = Json::array();
  const Json* const list = fields.array("tool_calls");
  if (list == nullptr) return calls;
  for (std::size_t i = 0; i < list->size(); ++i) {
    Fields call((*list)[i], fmt::format("{}[{}]", fields.name_of("tool_calls"), i));
    call.word("type", {"function"});
    Fields function(call.need("function"), call.name_of("function"));
    calls.push_back(call_of(call.needed_text("id"), function.needed_text("name"),
                            function.need("arguments"), function.name_of("arguments")));
  }
  return calls;
}

ToolChoice read_chat_choice(Fields& fields) {
  const Json* const choice = fields.find("tool_choice");
  if (choice == nullptr) return {};
  if (choice->is_string()) {
    const std::string word = *fields.word("tool_choice", {"auto", "none", "required"});
    return {.none = word == "none", .demanded = word == "required"};
  }
  Fields one(*choice, "tool_choice");
  one.need("type");
  one.word("type", {"function"});
  Fields function(one.need("function"), one.name_of("function"));
  const std::string name = function.needed_text("name");
  function.refuse_rest();
  one.refuse_rest();
  return {.demanded = true, .named = name};
}

Json read_chat_tools(Fields& fields, ToolRules& rules) {
  const Json* const list = fields.array("tools");
  Json tools = Json::array();
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    Fields tool((*list)[i], fmt::format("tools[{}]", i));
    tool.need("type");
    tool.word("type", {"function"});
    Fields function(tool.need("function"), tool.name_of("function"));
    tools.push_back(tool_of(function, rules));
  }
  return chosen_tools(std::move(tools), read_chat_choice(fields), rules);
}

}  // namespace

Json read_chat_messages(const Json& list) {
  Json messages = Json::array();
  std::map<std::string, std::string> called;  // names by the ids of calls
  for (std::size_t i = 0; i < list.size(); ++i) {
    Fields fields(list[i], fmt::format("messages[{}]", i));
    fields.need("role");
    const std::string role =
        *fields.word("role", {"system", "developer", "user", "assistant", "tool"});
    Json message{{"role", role == "developer" ? "system" : role}};
    Json calls = role == "assistant" ? read_chat_calls(fields) : Json::array();
    const Json* const content = fields.find("content");
    if (content == nullptr && calls.empty()) fields.wrong("content", "it is missing");
    message["content"] = read_content(content, fields.name_of("content"));
    if (role == "assistant") {
      for (const char* name : {"reasoning_content", "reasoning"})
        if (const auto reasoning = fields.text(name)) message["reasoning_content"] = *reasoning;
      for (const Json& call : calls)
        called[call["id"].get<std::string>()] = call["function"]["name"].get<std::string>();
      if (!calls.empty()) message["tool_calls"] = std::move(calls);
      fields.ignore({"refusal", "audio", "annotations", "function_call"});
    } else if (role == "tool") {
      const std::string id = fields.needed_text("tool_call_id");
      message["tool_call_id"] = id;
      if (called.contains(id)) message["name"] = called[id];
    }
    if (const auto name = fields.text("name")) message["name"] = *name;
    fields.refuse_rest();
    messages.push_back(std::move(message));
  }
  return messages;
}

namespace {

// As vLLM has it: the answer goes on with the last message.
bool read_going_on(Fields& fields, const Json& last) {
  constexpr const char* kName = "continue_final_message";
  const bool goes_on = fields.boolean(kName).value_or(false);
  fields.only("add_generation_prompt", !goes_on,
              goes_on ? "the answer begins no message" : "the answer begins a message");
  if (goes_on && !is_text_of_assistant(last))
    fields.wrong(kName, "the last message is no text of an assistant");
  return goes_on;
}

}  // namespace

Asking read_chat(const Json& body, const ServedModel& model) {
  Fields fields(body);
  read_model(fields, model);
  Asking asking;
  Chat conversation;
  fields.need("messages");
  conversation.messages = read_chat_messages(*fields.array("messages"));
  if (conversation.messages.empty()) fields.wrong("messages", "there is none");
  conversation.tools = read_chat_tools(fields, conversation.tool_rules);
  if (const Json* const more = fields.object("chat_template_kwargs"))
    conversation.variables = *more;
  if (const auto effort = fields.text("reasoning_effort")) {
    conversation.variables["reasoning_effort"] = *effort;
    if (*effort == "none") conversation.variables["enable_thinking"] = false;
  }
  asking.one_call = !fields.boolean("parallel_tool_calls").value_or(true);

  Wishes wishes = read_wishes(fields);
  const auto most = fields.integer("max_tokens", 1, 1 << 30);
  const auto most_new = fields.integer("max_completion_tokens", 1, 1 << 30);
  if (most && most_new && *most != *most_new)
    fields.wrong("max_tokens", "it is {}, and max_completion_tokens {}", *most, *most_new);
  wishes.max_new_tokens = most_new ? most_new : most;
  TextRequest request = request_of(model, wishes, fields);
  for (const std::string& stop : fields.texts("stop", kMostStops)) request.stop.push_back(stop);
  request.bias = read_bias(fields, model.vocabulary);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto likeliest = fields.integer("top_logprobs", 0, 20);
  if (likeliest.value_or(0) > 0 && !logprobs)
    fields.wrong("top_logprobs", "it needs logprobs to be true");
  if (logprobs) request.logprobs = static_cast<int>(likeliest.value_or(0));

  const bool usage = read_streaming(fields, asking);
  std::optional<grammar::Form> form = read_structured_outputs(fields);
  if (const Json* const format = fields.object("response_format"))
    form = one_of(form, read_format(*format, "response_format"));
  const auto count = static_cast<std::size_t>(fields.integer("n", 1, kMostChoices).value_or(1));
  fields.only("store", false, "this server keeps no answers");
  conversation.goes_on = read_going_on(fields, conversation.messages.back());
  read_what_gateways_add(fields);
  fields.ignore({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention"});
  fields.refuse_rest();

  const ToolRules tool_rules = conversation.tool_rules;
  set_prompt(model, std::move(conversation), request, asking.parts);
  if (form) set_rules(model, *form, asking, request);
  set_tool_rules(model, tool_rules, asking, request);
  asking.requests = {std::move(request)};
  check(model, asking.requests);
  asking.repeat(count);
  asking.writer = std::make_unique<ChatWriter>(model.text.tokenizer(), usage, logprobs);
  return asking;
}

}  // namespace ac::api
