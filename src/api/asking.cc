#include "api/asking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "api/json_call.h"
#include "base/error.h"

namespace ac::api {

void read_model(Fields& fields, const ServedModel& model) {
  const auto name = fields.text("model");
  if (name && *name != model.name)
    throw Refusal{404,
                  fmt::format("there is no model {}; this server has {}", shown(Json(*name)),
                              Json(model.name).dump()),
                  "model", "model_not_found"};
}

Wishes read_wishes(Fields& fields) {
  Wishes wishes;
  wishes.temperature = fields.number("temperature", 0, 100);
  wishes.top_p = fields.number("top_p", 0, 1);
  wishes.top_k = fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max());
  if (wishes.top_k == -1) wishes.top_k = 0;
  wishes.min_p = fields.number("min_p", 0, 1);
  wishes.repeat_penalty = fields.number("repetition_penalty", 0.01, 100);
  wishes.presence_penalty = fields.number("presence_penalty", -2, 2);
  wishes.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  const auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::max());
  if (seed) wishes.seed = static_cast<std::uint64_t>(*seed);
  return wishes;
}

void read_what_gateways_add(Fields& fields) {
  // As SGLang's does.
  for (const auto& [name, value] :
       {std::pair{"ignore_eos", false}, std::pair{"no_stop_trim", false},
        std::pair{"return_hidden_states", false}, std::pair{"separate_reasoning", true},
        std::pair{"skip_special_tokens", true}, std::pair{"stream_reasoning", true}})
    fields.only(name, value, "this is what the server does in any case");
}

TextRequest request_of(const ServedModel& model, const Wishes& wishes, const Fields& fields) {
  const Choosing chosen = choose(wishes.over(model.wishes), model.text.generation_config());
  if (chosen.sampling.is_greedy() && !wishes.temperature)
    for (const auto& [name, given] : {std::pair{"top_k", wishes.top_k.value_or(0) != 0},
                                      std::pair{"top_p", wishes.top_p.value_or(1) != 1},
                                      std::pair{"min_p", wishes.min_p.value_or(0) != 0}})
      if (given)
        fields.wrong(name,
                     "it has no effect at temperature 0, which is the default of this model: "
                     "give a temperature, too");
  return {.ids = {},
          .max_new_tokens = chosen.max_new_tokens,
          .sampling = chosen.sampling,
          .penalties = chosen.penalties,
          .stop = model.stop,
          .reuse = Reuse::exact};
}

bool read_streaming(Fields& fields, Asking& asking) {
  asking.stream = fields.boolean("stream").value_or(false);
  bool usage = false;
  if (const Json* const options = fields.object("stream_options")) {
    if (!asking.stream) fields.wrong("stream_options", "it needs stream to be true");
    Fields stream(*options, "stream_options");
    usage = stream.boolean("include_usage").value_or(false);
    stream.ignore({"include_obfuscation"});
    stream.refuse_rest();
  }
  return usage;
}

std::map<std::int64_t, double> read_bias(Fields& fields, std::int64_t vocabulary) {
  std::map<std::int64_t, double> bias;
  const Json* const given = fields.object("logit_bias");
  if (given == nullptr) return bias;
  for (const auto& [key, value] : given->items()) {
    const Json id = Json::parse(key, nullptr, false);
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocabulary))
      fields.wrong("logit_bias", "{} is no id of a token below {}", shown(Json(key)), vocabulary);
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
      fields.wrong("logit_bias", "{} is not a number from -100 to 100", shown(value));
    bias[id.get<std::int64_t>()] = value.get<double>();
  }
  return bias;
}

void Asking::repeat(std::size_t count) {
  std::vector<TextRequest> all;
  std::vector<std::string> all_before;
  for (std::size_t prompt = 0; prompt < requests.size(); ++prompt)
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(requests[prompt]);
      all.back().sampling.seed += i;
      if (!before.empty()) all_before.push_back(before[prompt]);
    }
  requests = std::move(all);
  before = std::move(all_before);
  answers_of_each = count;
}

void check(const ServedModel& model, const std::vector<TextRequest>& requests) {
  const auto most = model.context;
  for (const TextRequest& request : requests) {
    const auto prompt = std::ssize(request.ids);
    // The last token is not run.
    const auto wanted = prompt + std::max<std::int64_t>(request.max_new_tokens.value_or(1) - 1, 0);
    if (prompt > most || (request.max_new_tokens && wanted > most))
      throw Refusal{400,
                    fmt::format("the context has {} tokens: the prompt takes {}, and {} more are "
                                "asked for",
                                most, prompt, request.max_new_tokens.value_or(1)),
                    {},
                    "context_length_exceeded"};
    try {
      model.check(request);
    } catch (const Error& error) {
      throw Refusal{400, error.what()};
    }
  }
}

std::string read_content(const Json* content, const std::string& where,
                         std::initializer_list<const char*> types) {
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) refuse(where, "{} is neither a string nor a list", shown(*content));
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], fmt::format("{}[{}]", where, i));
    const std::string type = part.needed_text("type");
    if (std::ranges::find(types, type) == types.end())
      part.wrong("type", "only text is supported, and this is {}", shown(Json(type)));
    text += (i > 0 ? "\n" : "") + part.needed_text("text");
  }
  return text;
}

Json tool_of(Fields& function, ToolRules& rules) {
  const std::string name = function.needed_text("name");
  if (name.empty() || name.size() > 256) function.wrong("name", "it has no 1 to 256 characters");
  rules.strict.push_back(function.boolean("strict").value_or(false));
  rules.where.push_back(function.name_of("parameters"));
  Json tool{{"name", name}};
  if (const auto description = function.text("description")) tool["description"] = *description;
  const Json* const parameters = function.object("parameters");
  tool["parameters"] = parameters != nullptr
                           ? *parameters
                           : Json{{"type", "object"}, {"properties", Json::object()}};
  function.refuse_rest();
  return {{"type", "function"}, {"function", tool}};
}

Json chosen_tools(Json tools, const ToolChoice& choice, ToolRules& rules) {
  if (tools.empty() && choice.demanded) refuse("tool_choice", "there are no tools to choose from");
  if (tools.empty() || choice.none) {
    rules = {};
    return nullptr;
  }
  rules.demanded = choice.demanded;
  rules.named = choice.named;
  return tools;
}

Json call_of(const std::string& id, const std::string& name, const Json& arguments,
             const std::string& where) {
  Json object = arguments;
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    object = text.empty() ? Json::object() : json_in(text);
    // A model may write what is no JSON, and a client sends it back.
    if (!object.is_object()) object = {{"invalid_json", text}};
  }
  if (!object.is_object()) refuse(where, "{} is no JSON object", shown(object));
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", object}}}};
}

bool is_text_of_assistant(const Json& message) {
  return message["role"] == "assistant" && !message.contains("tool_calls") &&
         message["content"].get_ref<const std::string&>().find_first_not_of(" \t\n\v\f\r") !=
             std::string::npos;
}

namespace {

// As some templates want it, which add text to it.
void write_arguments_as_text(Json& messages) {
  for (Json& message : messages)
    if (message.contains("tool_calls"))
      for (Json& call : message["tool_calls"]) {
        Json& arguments = call["function"]["arguments"];
        arguments = arguments.dump();
      }
}

}  // namespace

void set_prompt(const ServedModel& model, Chat conversation, TextRequest& request,
                AnswerParts::Options& parts) {
  parts.format = model.format;
  parts.tools = conversation.tools;
  parts.thinks = model.thinks;
  if (!conversation.tools.is_null() && model.format == ToolFormat::none)
    refuse("tools", "the model's chat template has no form for calls that this server reads");
  if (!model.text.has_chat_template())
    throw Refusal{400, "the model has no chat template: /v1/completions takes plain text"};
  Json input = std::move(conversation.variables);
  input["messages"] = std::move(conversation.messages);
  if (!conversation.tools.is_null()) input["tools"] = conversation.tools;
  const auto prompt = [&]() -> ModelText::ChatPrompt {
    std::string first;
    try {
      return model.text.chat_prompt(input, conversation.goes_on);
    } catch (const Error& error) {
      first = error.what();
    }
    try {
      write_arguments_as_text(input["messages"]);
      return model.text.chat_prompt(input, conversation.goes_on);
    } catch (const Error&) {
      throw Refusal{400, "the chat template refuses the conversation: " + first, "messages"};
    }
  }();
  request.ids = prompt.ids;
  parts.thinking = prompt.thinking;
  parts.thought = prompt.thought;
  request.shown = shown_tokens(model.format, model.text.tokenizer());
}

}  // namespace ac::api
