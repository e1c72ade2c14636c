#include "api/structured.h"

#include <algorithm>
#include <array>

#include "api/asking.h"
#include "api/tool_grammar.h"
#include "base/error.h"
#include "grammar/schema.h"

namespace ac::api {
namespace {

grammar::Form schema_part(const Json& schema, const std::string& where) {
  try {
    return {grammar::Form::Kind::schema, grammar::normal_schema(schema, where), where};
  } catch (const grammar::Refused& refused) {
    refuse(refused.where(), "{}", refused.what());
  }
}

grammar::Form any_object(const std::string& where) {
  return schema_part({{"type", "object"}}, where);
}

// The schema of a call's arguments, which are always an object.
grammar::Form arguments_part(Json schema, const std::string& where) {
  const auto is_open = [&](const char* each) { return !schema.contains(each); };
  if (std::ranges::all_of(std::array{"type", "$ref", "anyOf", "oneOf", "allOf"}, is_open))
    schema["type"] = "object";
  if (schema.contains("type") && schema["type"] != "object")
    refuse(where, "its type is not \"object\"");
  return schema_part(schema, where);
}

// `asked`: the parameter that asks for a grammar.
grammar::Rules rules_of(const ServedModel& model, const grammar::Source& source, Asking& asking,
                        const std::string& asked) {
  const AnswerParts::Options& parts = asking.parts;
  if (!model.grammars) refuse(asked, "structured output is not supported");
  grammar::Rules rules;
  if (parts.format == ToolFormat::harmony)
    refuse(asked, "structured output is not supported with a model that answers in channels");
  if (parts.thinks && !parts.thought) {
    const text::Tokenizer& tokenizer = model.text.tokenizer();
    const auto opens = tokenizer.id("<think>"), closes = tokenizer.id("</think>");
    if (opens && closes) {
      rules.reasoning =
          parts.thinking ? grammar::Rules::Reasoning::opened : grammar::Rules::Reasoning::may_open;
      rules.opens = *opens;
      rules.closes = *closes;
    } else if (parts.thinking) {
      refuse(asked,
             "structured output needs to know where reasoning ends, and the model has no token "
             "</think>");
    }
  }
  rules.source = std::make_shared<const grammar::Source>(source);
  if (!model.grammars->has_checked(source))
    asking.check_grammar = [source = rules.source, asked, grammars = model.grammars] {
      try {
        grammars->check(*source);
      } catch (const grammar::Refused& refused) {
        refuse(refused.where().empty() ? asked : refused.where(), "{}", refused.what());
      }
    };
  return rules;
}

}  // namespace

std::optional<grammar::Form> read_format(const Json& given, const std::string& where) {
  Fields format(given, where);
  format.need("type");
  const std::string type = *format.word("type", {"text", "json_object", "json_schema"});
  if (type == "text") {
    format.refuse_rest();
    return {};
  }
  if (type == "json_object") {
    format.refuse_rest();
    return any_object(where);
  }
  const auto read = [](Fields& fields) {
    fields.text("name");
    fields.text("description");
    fields.boolean("strict");
    const Json& schema = fields.need("schema");
    fields.refuse_rest();
    return schema_part(schema, fields.name_of("schema"));
  };
  const Json* const inner = format.object("json_schema");
  if (inner == nullptr) return read(format);
  format.refuse_rest();
  Fields fields(*inner, format.name_of("json_schema"));
  return read(fields);
}

std::optional<grammar::Form> read_structured_outputs(Fields& fields) {
  const Json* const given = fields.object("structured_outputs");
  if (given == nullptr) return {};
  Fields form(*given, fields.name_of("structured_outputs"));
  std::vector<grammar::Form> parts;
  if (const Json* const json = form.find("json")) {
    const std::string where = form.name_of("json");
    if (!json->is_string()) {
      parts.push_back(schema_part(*json, where));
    } else {
      const JsonLimits limits{.bytes = grammar::kMostBytes, .depth = 64};
      try {
        parts.push_back(
            schema_part(parse_json(json->get_ref<const std::string&>(), "it", limits), where));
      } catch (const Error& error) {
        refuse(where, "{}", error.what());
      }
    }
  }
  if (form.boolean("json_object").value_or(false))
    parts.push_back(any_object(form.name_of("json_object")));
  if (const auto regex = form.text("regex"))
    parts.push_back({grammar::Form::Kind::regex, *regex, form.name_of("regex")});
  if (const Json* const choices = form.array("choice")) {
    const std::string where = form.name_of("choice");
    std::string lark = "start: ";
    for (std::size_t i = 0; i < choices->size(); ++i) {
      const Json& choice = (*choices)[i];
      if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
        refuse(fmt::format("{}[{}]", where, i), "it is no text");
      lark += (i > 0 ? " | " : "") + choice.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    if (choices->empty()) refuse(where, "there is none");
    parts.push_back({grammar::Form::Kind::lark, lark + "\n", where});
  }
  if (const auto grammar = form.text("grammar"))
    parts.push_back({grammar::Form::Kind::ebnf, *grammar, form.name_of("grammar")});
  form.refuse_rest();
  if (parts.size() != 1)
    refuse(fields.name_of("structured_outputs"),
           "give one of json, json_object, regex, choice and grammar");
  return parts.front();
}

std::optional<grammar::Form> one_of(std::optional<grammar::Form> one,
                                    std::optional<grammar::Form> other) {
  if (one && other) refuse(other->where, "{} says already what the answer must be", one->where);
  return one ? one : other;
}

void set_rules(const ServedModel& model, const grammar::Form& form, Asking& asking,
               TextRequest& request) {
  if (!asking.parts.tools.is_null())
    refuse(form.where, "it contradicts tools: an answer cannot be that and calls of tools");
  request.rules = rules_of(model, {.whole = form}, asking, form.where);
}

void set_tool_rules(const ServedModel& model, const ToolRules& rules, Asking& asking,
                    TextRequest& request) {
  const AnswerParts::Options& parts = asking.parts;
  const auto first_strict = std::ranges::find(rules.strict, true);
  if (!rules.demanded && (parts.tools.is_null() || first_strict == rules.strict.end())) return;
  AC_ASSERT(parts.tools.size() == rules.strict.size());
  const auto strict_at = static_cast<std::size_t>(first_strict - rules.strict.begin());
  const std::string asked = rules.demanded ? "tool_choice" : rules.where[strict_at];
  grammar::Source source;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts.tools.size(); ++i) {
    const Json& function = parts.tools[i].at("function");
    const std::string name = function.at("name");
    if (!rules.named.empty() && name != rules.named) continue;
    if (std::ranges::find(names, name) != names.end())
      refuse(rules.where[i], "two tools have the name {}", shown(Json(name)));
    names.push_back(name);
    const bool follows = rules.demanded || rules.strict[i];
    source.parts.push_back(follows ? arguments_part(function.at("parameters"), rules.where[i])
                                   : any_object(rules.where[i]));
  }
  if (names.empty()) refuse("tool_choice", "there is no tool {}", shown(Json(rules.named)));
  text::TokenId trigger = -1;
  try {
    const CallGrammar calls = call_grammar(parts.format, names, asking.one_call, !rules.demanded,
                                           model.text.chat_template(true), model.text.tokenizer());
    source.whole = {grammar::Form::Kind::lark, calls.lark, asked};
    trigger = calls.trigger;
  } catch (const Error& error) {
    refuse(asked, "{}", error.what());
  }
  request.rules = rules_of(model, source, asking, asked);
  request.rules.trigger = trigger;
}

}  // namespace ac::api
