// Anthropic's /v1/messages.
#include <map>

#include "api/asking.h"
#include "api/json_call.h"

namespace ac::api {
namespace {

class MessagesWriter : public Writer {
 public:
  Json whole(const Reply& reply) const override {
    const Choice& choice = reply.choices[0];
    Json content = Json::array();
    if (!choice.reasoning.empty()) content.push_back(thinking(choice.reasoning));
    if (!choice.text.empty()) content.push_back({{"type", "text"}, {"text", choice.text}});
    for (const Call& call : choice.calls) {
      Json use = tool_use(call);
      const Json input = json_in(call.arguments);
      // A model may write what is no JSON.
      use["input"] = input.is_object() ? input : Json{{"invalid_json", call.arguments}};
      content.push_back(use);
    }
    Json message = head(reply);
    message["content"] = content;
    message["stop_reason"] = reason(choice);
    message["stop_sequence"] = stop_sequence(choice);
    message["usage"] = usage(reply);
    return message;
  }

  std::string begin(const Reply& reply) override {
    Json message = head(reply);
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = {{"input_tokens", 0}, {"output_tokens", 0}};  // known at the end
    return named({{"type", "message_start"}, {"message", message}});
  }
  std::string part(const Reply& reply, std::size_t, const Part& part) override {
    switch (part.kind) {
      case Part::Kind::text:
        return in_block("text", {{"type", "text"}, {"text", ""}},
                        {{"type", "text_delta"}, {"text", part.text}});
      case Part::Kind::reasoning:
        return in_block("thinking", thinking(""),
                        {{"type", "thinking_delta"}, {"thinking", part.text}});
      case Part::Kind::call: {
        Json use = tool_use(reply.choices[0].calls.back());
        use["input"] = Json::object();
        return close() + open("tool_use", use);
      }
      case Part::Kind::arguments:
        return named(delta({{"type", "input_json_delta"}, {"partial_json", part.text}}));
    }
    return {};
  }
  std::string ended(const Reply& reply, std::size_t) override {
    const Choice& choice = reply.choices[0];
    return close() +
           named({{"type", "message_delta"},
                  {"delta",
                   {{"stop_reason", reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
                  {"usage", usage(reply)}});
  }
  std::string done(const Reply&) override { return named({{"type", "message_stop"}}); }
  std::string failed(const Refusal& refusal) override {
    return named(to_json(refusal, ErrorForm::anthropic));
  }

 private:
  static Json head(const Reply& reply) {
    return {{"id", reply.id}, {"type", "message"}, {"role", "assistant"}, {"model", reply.model}};
  }
  // A signature is proof for another server; there is none here.
  static Json thinking(const std::string& text) {
    return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
  }
  static Json tool_use(const Call& call) {
    return {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}};
  }
  static const char* reason(const Choice& choice) {
    if (choice.finish == "length") return "max_tokens";
    if (!choice.calls.empty()) return "tool_use";
    return choice.stopped_by.empty() ? "end_turn" : "stop_sequence";
  }
  static Json stop_sequence(const Choice& choice) {
    return choice.stopped_by.empty() ? Json() : Json(choice.stopped_by);
  }
  static Json usage(const Reply& reply) {
    return {{"input_tokens", reply.prompt_tokens - reply.cached_tokens},
            {"cache_read_input_tokens", reply.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"output_tokens", reply.completion_tokens()}};
  }
  static std::string named(const Json& json) { return event(json, json["type"]); }

  Json delta(const Json& what) const {
    return {{"type", "content_block_delta"}, {"index", index_}, {"delta", what}};
  }
  std::string open(const char* type, const Json& block) {
    open_ = type;
    return named({{"type", "content_block_start"}, {"index", index_}, {"content_block", block}});
  }
  std::string close() {
    if (open_.empty()) return {};
    open_.clear();
    return named({{"type", "content_block_stop"}, {"index", index_++}});
  }
  std::string in_block(const char* type, const Json& block, const Json& what) {
    std::string events;
    if (open_ != type) {
      events = close();
      events += open(type, block);
    }
    return events + named(delta(what));
  }

  std::size_t index_ = 0;  // of the block
  std::string open_;       // its type
};

// One message of theirs may become several: results of tools are messages of their own.
void read_message(Fields& fields, const std::string& where, Json& messages,
                  std::map<std::string, std::string>& called) {
  fields.need("role");
  const std::string role = *fields.word("role", {"user", "assistant"});
  const Json& content = fields.need("content");
  fields.refuse_rest();
  Json message{{"role", role}, {"content", ""}};
  if (content.is_string()) {
    message["content"] = content;
    messages.push_back(message);
    return;
  }
  if (!content.is_array())
    refuse(where + ".content", "{} is neither a string nor a list", shown(content));
  std::string text;
  bool has_text = false;
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields block(content[i], fmt::format("{}.content[{}]", where, i));
    block.ignore({"cache_control"});
    const std::string type = block.needed_text("type");
    if (type == "text") {
      text += (has_text ? "\n" : "") + block.needed_text("text");
      has_text = true;
      block.ignore({"citations"});
    } else if (type == "tool_result" && role == "user") {
      const std::string id = block.needed_text("tool_use_id");
      Json result{{"role", "tool"}, {"tool_call_id", id}};
      if (called.contains(id)) result["name"] = called[id];
      result["content"] = read_content(block.find("content"), block.name_of("content"));
      if (block.boolean("is_error").value_or(false))
        result["content"] = "Error: " + result["content"].get<std::string>();
      messages.push_back(result);
    } else if (type == "tool_use" && role == "assistant") {
      const std::string id = block.needed_text("id"), name = block.needed_text("name");
      called[id] = name;
      message["tool_calls"].push_back(
          call_of(id, name, block.need("input"), block.name_of("input")));
    } else if (type == "thinking" && role == "assistant") {
      Json& all = message["reasoning_content"];
      all = (all.is_null() ? "" : all.get<std::string>() + "\n") + block.needed_text("thinking");
      block.ignore({"signature"});
    } else if (type == "redacted_thinking") {
      block.ignore({"data"});
    } else {
      block.wrong("type", "{} is not supported in a message of the role {}", shown(Json(type)),
                  role);
    }
    block.refuse_rest();
  }
  message["content"] = text;
  if (has_text || role == "assistant") messages.push_back(message);
}

Json read_claude_tools(Fields& fields, ToolRules& rules) {
  Json tools = Json::array();
  const Json* const list = fields.array("tools");
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    Fields tool((*list)[i], fmt::format("tools[{}]", i));
    tool.only("type", "custom", "the server has no tools of its own");
    tool.ignore({"cache_control", "eager_input_streaming"});  // arguments come as they are written
    Json function{{"name", tool.needed_text("name")}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    tool.need("input_schema");
    function["parameters"] = *tool.object("input_schema");
    if (const auto strict = tool.boolean("strict")) function["strict"] = *strict;
    tool.refuse_rest();
    Fields checked(function, tool.name_of(""));
    tools.push_back(tool_of(checked, rules));
    rules.where.back() = tool.name_of("input_schema");
  }
  ToolChoice choice;
  if (const Json* const given = fields.object("tool_choice")) {
    Fields fields_of_choice(*given, "tool_choice");
    fields_of_choice.need("type");
    const std::string type = *fields_of_choice.word("type", {"auto", "none", "any", "tool"});
    choice.none = type == "none";
    choice.demanded = type == "any" || type == "tool";
    if (type == "tool") choice.named = fields_of_choice.needed_text("name");
    fields_of_choice.ignore({"disable_parallel_tool_use"});
    fields_of_choice.refuse_rest();
  }
  return chosen_tools(std::move(tools), choice, rules);
}

// What Claude Code sends: that all reasoning is kept, as it is in any case.
void read_context_management(Fields& fields) {
  const Json* const given = fields.object("context_management");
  if (given == nullptr) return;
  Fields management(*given, "context_management");
  const Json* const edits = management.array("edits");
  management.refuse_rest();
  for (std::size_t i = 0; edits != nullptr && i < edits->size(); ++i) {
    Fields edit((*edits)[i], fmt::format("context_management.edits[{}]", i));
    edit.need("type");
    edit.word("type", {"clear_thinking_20251015"});
    edit.need("keep");
    edit.only("keep", "all", "nothing is ever cut off a conversation");
    edit.refuse_rest();
  }
}

}  // namespace

Chat read_messages_chat(Fields& fields) {
  Chat conversation;
  read_context_management(fields);
  if (const Json* const system = fields.find("system")) {
    Json blocks = *system;
    if (blocks.is_array())
      for (Json& block : blocks)
        if (block.is_object()) block.erase("cache_control");
    conversation.messages.push_back(
        {{"role", "system"}, {"content", read_content(&blocks, "system")}});
  }
  fields.need("messages");
  const Json& list = *fields.array("messages");
  std::map<std::string, std::string> called;  // names by the ids of calls
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    Fields message(list[i], where);
    read_message(message, where, conversation.messages, called);
  }
  if (list.empty()) fields.wrong("messages", "there is none");
  // An answer goes on with what an assistant has begun.
  conversation.goes_on = is_text_of_assistant(conversation.messages.back());
  conversation.tools = read_claude_tools(fields, conversation.tool_rules);
  if (const Json* const given = fields.object("thinking")) {
    Fields thinking(*given, "thinking");
    const std::string type = thinking.needed_text("type");
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      thinking.wrong("type", "{} is not one of enabled, adaptive, disabled", shown(Json(type)));
    conversation.variables["enable_thinking"] = type != "disabled";
  }
  return conversation;
}

Asking read_messages(const Json& body, const ServedModel& model) {
  Fields fields(body);
  read_model(fields, model);
  Asking asking;
  Chat conversation = read_messages_chat(fields);
  Wishes wishes;
  wishes.temperature = fields.number("temperature", 0, 1);
  wishes.top_p = fields.number("top_p", 0, 1);
  wishes.top_k = fields.integer("top_k", 0, 1 << 30);
  fields.need("max_tokens");
  wishes.max_new_tokens = fields.integer("max_tokens", 1, 1 << 30);
  TextRequest request = request_of(model, wishes, fields);
  for (const std::string& stop : fields.texts("stop_sequences", kMostStops))
    request.stop.push_back(stop);
  asking.stream = fields.boolean("stream").value_or(false);
  if (const Json* const choice = fields.object("tool_choice"))
    asking.one_call = choice->value("disable_parallel_tool_use", Json(false)) == true;
  std::optional<grammar::Form> form;
  if (const Json* const given = fields.object("output_config")) {
    Fields output(*given, "output_config");
    if (const Json* const format = output.object("format"))
      form = read_format(*format, output.name_of("format"));
    output.ignore({"effort"});
    output.refuse_rest();
  }
  fields.ignore({"metadata", "service_tier", "cache_control"});
  fields.refuse_rest();
  const ToolRules tool_rules = conversation.tool_rules;
  set_prompt(model, std::move(conversation), request, asking.parts);
  if (form) set_rules(model, *form, asking, request);
  set_tool_rules(model, tool_rules, asking, request);
  asking.requests = {std::move(request)};
  check(model, asking.requests);
  asking.writer = std::make_unique<MessagesWriter>();
  return asking;
}

}  // namespace ac::api
