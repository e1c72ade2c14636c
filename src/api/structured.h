// Structured output: what an answer must be, as requests of the APIs say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/request_fields.h"
#include "api/tool_format.h"
#include "ask/text_request.h"
#include "grammar/grammar.h"

namespace ac::api {

struct ServedModel;
struct Asking;

// What a request demands of the calls in its answer.
struct ToolRules {
  bool demanded = false;                // an answer has a call
  std::string named = {};               // of this tool only; empty: of any
  std::vector<bool> strict = {};        // whose arguments follow their schema, in any case
  std::vector<std::string> where = {};  // the schema of each stands in the request
};

// {"type": "json_schema", ...}, "json_object" or "text". OpenAI's chats have the schema in a member
// of the name of the type, others beside it.
std::optional<grammar::Form> read_format(const Json& format, const std::string& where);
// structured_outputs, as vLLM has it: one of json, json_object, regex, choice and grammar.
std::optional<grammar::Form> read_structured_outputs(Fields& fields);
// The one that is given. A request that gives both is refused.
std::optional<grammar::Form> one_of(std::optional<grammar::Form> one,
                                    std::optional<grammar::Form> other);

// The answer must be that. It follows reasoning, as the asking's parts tell it. A grammar that is
// not known yet is left to be checked: see Asking::check_grammar.
void set_rules(const ServedModel& model, const grammar::Form& form, Asking& asking,
               TextRequest& request);
// Its calls must be as the rules say, if they say something.
void set_tool_rules(const ServedModel& model, const ToolRules& rules, Asking& asking,
                    TextRequest& request);

}  // namespace ac::api
