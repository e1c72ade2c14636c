// OpenAI's /v1/responses, with text and tools. The server keeps nothing: each request has the whole
// conversation.
#include <map>
#include <utility>

#include "api/asking.h"

namespace ac::api {
namespace {

class ResponseWriter : public Writer {
 public:
  explicit ResponseWriter(Json settings) : settings_(std::move(settings)) {}

  Json whole(const Reply& reply) const override {
    Json items = Json::array();
    const Choice& choice = reply.choices[0];
    if (!choice.reasoning.empty())
      items.push_back(reasoning_item(id_of(reply, "rs_"), choice.reasoning));
    if (!choice.text.empty())
      items.push_back(message_item(id_of(reply, "msg_"), choice.text, "completed"));
    for (const Call& call : choice.calls)
      items.push_back(call_item(call, call.arguments, "completed"));
    if (!items.empty() && items.back().contains("status")) items.back()["status"] = status(reply);
    return response(reply, items);
  }

  std::string begin(const Reply& reply) override {
    const Json begun = response(reply, Json::array());
    return named({{"type", "response.created"}, {"response", begun}}) +
           named({{"type", "response.in_progress"}, {"response", begun}});
  }
  std::string part(const Reply& reply, std::size_t, const Part& part) override {
    std::string events;
    const Choice& choice = reply.choices[0];
    if (part.kind != kind_ || part.kind == Part::Kind::call) {
      if (part.kind != Part::Kind::arguments) events = close(reply);
      if (part.kind == Part::Kind::reasoning)
        events += add(reasoning_item(id_of(reply, "rs_"), ""),
                      {{"type", "reasoning_text"}, {"text", ""}});
      if (part.kind == Part::Kind::text)
        events += add(message_item(id_of(reply, "msg_"), "", "in_progress"), text_part(""));
      if (part.kind == Part::Kind::call)
        events += add(call_item(choice.calls.back(), "", "in_progress"), nullptr);
      kind_ = part.kind == Part::Kind::arguments ? Part::Kind::call : part.kind;
    }
    text_ += part.kind == Part::Kind::call ? "" : part.text;
    switch (part.kind) {
      case Part::Kind::text:
        return events + in_item({{"type", "response.output_text.delta"},
                                 {"content_index", 0},
                                 {"delta", part.text},
                                 {"logprobs", Json::array()}});
      case Part::Kind::reasoning:
        return events + in_item({{"type", "response.reasoning_text.delta"},
                                 {"content_index", 0},
                                 {"delta", part.text}});
      case Part::Kind::arguments:
        return events +
               in_item({{"type", "response.function_call_arguments.delta"}, {"delta", part.text}});
      case Part::Kind::call:
        return events;
    }
    return events;
  }
  std::string ended(const Reply& reply, std::size_t) override { return close(reply); }
  std::string done(const Reply& reply) override {
    const Json body = response(reply, items_);
    return named(
        {{"type", body["status"] == "completed" ? "response.completed" : "response.incomplete"},
         {"response", body}});
  }
  std::string failed(const Refusal& refusal) override {
    return named({{"type", "error"},
                  {"code", "server_error"},
                  {"message", refusal.message},
                  {"param", nullptr}});
  }

 private:
  static const char* status(const Reply& reply) {
    const std::string& finish = reply.choices[0].finish;
    return finish.empty() ? "in_progress" : finish == "length" ? "incomplete" : "completed";
  }
  static std::string id_of(const Reply& reply, const char* prefix) {
    return prefix + reply.id.substr(reply.id.find('_') + 1);
  }
  static Json text_part(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  static Json message_item(const std::string& id, const std::string& text, const char* status) {
    return {{"id", id},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", text.empty() ? Json::array() : Json::array({text_part(text)})}};
  }
  static Json reasoning_item(const std::string& id, const std::string& text) {
    Json content = Json::array();
    if (!text.empty()) content.push_back({{"type", "reasoning_text"}, {"text", text}});
    return {{"id", id}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", content}};
  }
  static Json call_item(const Call& call, const std::string& arguments, const char* status) {
    return {{"id", "fc_" + call.id}, {"type", "function_call"}, {"status", status},
            {"call_id", call.id},    {"name", call.name},       {"arguments", arguments}};
  }
  Json response(const Reply& reply, const Json& items) const {
    const Choice& choice = reply.choices[0];
    const bool cut = choice.finish == "length";
    Json body{{"id", reply.id},
              {"object", "response"},
              {"created_at", reply.created},
              {"status", status(reply)},
              {"error", nullptr},
              {"incomplete_details", cut ? Json{{"reason", "max_output_tokens"}} : Json()},
              {"model", reply.model},
              {"output", items},
              {"usage", nullptr}};
    body.update(settings_);
    if (!choice.finish.empty())
      body["usage"] = {{"input_tokens", reply.prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", reply.cached_tokens}}},
                       {"output_tokens", reply.completion_tokens()},
                       {"output_tokens_details", {{"reasoning_tokens", reply.reasoning_tokens()}}},
                       {"total_tokens", reply.prompt_tokens + reply.completion_tokens()}};
    return body;
  }

  std::string named(Json json) {
    json["sequence_number"] = count_++;
    return event(json, json["type"]);
  }
  std::string in_item(Json json) {
    json["item_id"] = item_["id"];
    json["output_index"] = items_.size();
    return named(json);
  }
  std::string add(const Json& item, const Json& content) {
    item_ = item;
    text_.clear();
    std::string events = named(
        {{"type", "response.output_item.added"}, {"output_index", items_.size()}, {"item", item}});
    if (!content.is_null())
      events += in_item(
          {{"type", "response.content_part.added"}, {"content_index", 0}, {"part", content}});
    return events;
  }
  std::string close(const Reply& reply) {
    if (item_.is_null()) return {};
    const char* const ended = reply.choices[0].finish == "length" ? "incomplete" : "completed";
    std::string events;
    Json done;
    const auto end_part = [&](const char* type, const Json& content) {
      events = in_item({{"type", type}, {"content_index", 0}, {"text", text_}});
      events += in_item(
          {{"type", "response.content_part.done"}, {"content_index", 0}, {"part", content}});
    };
    if (kind_ == Part::Kind::text) {
      events = in_item({{"type", "response.output_text.done"},
                        {"content_index", 0},
                        {"text", text_},
                        {"logprobs", Json::array()}});
      events += in_item({{"type", "response.content_part.done"},
                         {"content_index", 0},
                         {"part", text_part(text_)}});
      done = message_item(item_["id"], text_, ended);
    } else if (kind_ == Part::Kind::reasoning) {
      end_part("response.reasoning_text.done", {{"type", "reasoning_text"}, {"text", text_}});
      done = reasoning_item(item_["id"], text_);
    } else {
      events = in_item({{"type", "response.function_call_arguments.done"},
                        {"name", item_["name"]},
                        {"arguments", text_}});
      done = item_;
      done["arguments"] = text_;
      done["status"] = ended;
    }
    events += named(
        {{"type", "response.output_item.done"}, {"output_index", items_.size()}, {"item", done}});
    items_.push_back(done);
    item_ = nullptr;
    kind_.reset();
    return events;
  }

  const Json settings_;
  std::int64_t count_ = 0;  // of events
  Json items_ = Json::array();
  Json item_;  // that is under way; null: none
  std::optional<Part::Kind> kind_;
  std::string text_;  // of it
};

// Messages, calls and their results; calls that follow one another are one message's. Reasoning
// begins a message of its own.
Json read_input(Fields& fields) {
  Json messages = Json::array();
  const auto instructions = fields.text("instructions");
  if (instructions) messages.push_back({{"role", "system"}, {"content", *instructions}});
  const Json& input = fields.need("input");
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
    return messages;
  }
  if (!input.is_array()) fields.wrong("input", "{} is neither a string nor a list", shown(input));
  std::map<std::string, std::string> called;  // names by the ids of calls
  bool thought = false;  // the last message is reasoning, and what follows it belongs to it
  for (std::size_t i = 0; i < input.size(); ++i) {
    const std::string where = fmt::format("input[{}]", i);
    Fields item(input[i], where);
    item.ignore({"id", "status"});
    const std::string type = item.text("type").value_or("message");
    const bool follows = std::exchange(thought, false);
    if (type == "message") {
      item.need("role");
      const std::string role = *item.word("role", {"system", "developer", "user", "assistant"});
      Json content = item.need("content");
      if (content.is_array())
        for (Json& part : content)
          if (part.is_object()) part.erase("annotations"), part.erase("logprobs");
      const std::string text =
          read_content(&content, item.name_of("content"), {"input_text", "output_text", "text"});
      if (role == "assistant" && follows)
        messages.back()["content"] = text;
      else
        messages.push_back({{"role", role == "developer" ? "system" : role}, {"content", text}});
    } else if (type == "function_call") {
      const std::string id = item.needed_text("call_id"), name = item.needed_text("name");
      called[id] = name;
      if (messages.empty() || messages.back()["role"] != "assistant")
        messages.push_back({{"role", "assistant"}, {"content", ""}});
      messages.back()["tool_calls"].push_back(
          call_of(id, name, item.need("arguments"), item.name_of("arguments")));
    } else if (type == "function_call_output") {
      const std::string id = item.needed_text("call_id");
      Json result{{"role", "tool"}, {"tool_call_id", id}};
      if (called.contains(id)) result["name"] = called[id];
      result["content"] =
          read_content(item.find("output"), item.name_of("output"), {"input_text", "output_text"});
      messages.push_back(result);
    } else if (type == "reasoning") {
      item.ignore({"summary", "encrypted_content"});
      const std::string text =
          read_content(item.find("content"), item.name_of("content"), {"reasoning_text"});
      thought = !text.empty();
      if (thought)
        messages.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
    } else {
      item.wrong("type", "{} is not supported", shown(Json(type)));
    }
    item.refuse_rest();
  }
  return messages;
}

Json read_flat_tools(Fields& fields, ToolRules& rules) {
  Json tools = Json::array();
  const Json* const list = fields.array("tools");
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    Fields tool((*list)[i], fmt::format("tools[{}]", i));
    tool.need("type");
    tool.word("type", {"function"});
    tools.push_back(tool_of(tool, rules));
  }
  ToolChoice choice;
  const Json* const given = fields.find("tool_choice");
  if (given != nullptr && given->is_string()) {
    const std::string word = *fields.word("tool_choice", {"auto", "none", "required"});
    choice = {.none = word == "none", .demanded = word == "required"};
  } else if (given != nullptr) {
    Fields one(*given, "tool_choice");
    one.need("type");
    one.word("type", {"function"});
    choice = {.demanded = true, .named = one.needed_text("name")};
    one.refuse_rest();
  }
  return chosen_tools(std::move(tools), choice, rules);
}

}  // namespace

Asking read_response(const Json& body, const ServedModel& model) {
  Fields fields(body);
  read_model(fields, model);
  Asking asking;
  Chat conversation;
  conversation.messages = read_input(fields);
  if (conversation.messages.empty()) fields.wrong("input", "there is none");
  conversation.tools = read_flat_tools(fields, conversation.tool_rules);
  if (const Json* const given = fields.object("reasoning")) {
    Fields reasoning(*given, "reasoning");
    if (const auto effort = reasoning.text("effort")) {
      conversation.variables["reasoning_effort"] = *effort;
      if (*effort == "none") conversation.variables["enable_thinking"] = false;
    }
    reasoning.ignore({"summary", "generate_summary"});
    reasoning.refuse_rest();
  }
  asking.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
  Wishes wishes;
  wishes.temperature = fields.number("temperature", 0, 2);
  wishes.top_p = fields.number("top_p", 0, 1);
  wishes.max_new_tokens = fields.integer("max_output_tokens", 1, 1 << 30);
  TextRequest request = request_of(model, wishes, fields);
  asking.stream = fields.boolean("stream").value_or(false);
  std::optional<grammar::Form> answer_form;
  if (const Json* const text = fields.object("text")) {
    Fields form(*text, "text");
    if (const Json* const format = form.object("format"))
      answer_form = read_format(*format, form.name_of("format"));
    form.ignore({"verbosity"});
    form.refuse_rest();
  }
  if (const Json* const include = fields.array("include"))
    for (const Json& each : *include)
      if (each == "message.output_text.logprobs")
        fields.wrong("include", "/v1/chat/completions has logprobs, and this has none");
  fields.only("store", false, "this server keeps no answers");
  fields.only("background", false, "this server keeps no answers");
  fields.only("truncation", "disabled", "nothing is ever cut off a conversation");
  fields.ignore({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "stream_options"});
  fields.refuse_rest();

  const auto given_or = [&](const char* name, const Json& otherwise) {
    const Json* const given = fields.find(name);
    return given != nullptr ? *given : otherwise;
  };
  Json settings{{"instructions", given_or("instructions", nullptr)},
                {"max_output_tokens", given_or("max_output_tokens", nullptr)},
                {"metadata", given_or("metadata", Json::object())},
                {"parallel_tool_calls", !asking.one_call},
                {"previous_response_id", nullptr},
                {"store", false},
                {"temperature", request.sampling.temperature},
                {"top_p", request.sampling.top_p},
                {"tool_choice", given_or("tool_choice", "auto")},
                {"tools", given_or("tools", Json::array())}};
  const ToolRules tool_rules = conversation.tool_rules;
  set_prompt(model, std::move(conversation), request, asking.parts);
  if (answer_form) set_rules(model, *answer_form, asking, request);
  set_tool_rules(model, tool_rules, asking, request);
  asking.requests = {std::move(request)};
  check(model, asking.requests);
  asking.writer = std::make_unique<ResponseWriter>(std::move(settings));
  return asking;
}

}  // namespace ac::api
