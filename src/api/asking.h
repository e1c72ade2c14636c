// What a request asks for, whichever API it came by, and what reading the APIs has in common.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/reply.h"
#include "api/request_fields.h"
#include "api/structured.h"
#include "api/tool_format.h"
#include "ask/choosing.h"
#include "ask/model_text.h"
#include "ask/text_request.h"
#include "grammar/grammar.h"

namespace ac::api {

// The model, as requests see it.
struct ServedModel {
  const ModelText& text;
  std::int64_t context = 0, vocabulary = 0;
  // That a request has room and can be done; an error says what is not so.
  std::function<void(const TextRequest&)> check;
  std::string name, fingerprint;  // the latter of its package, when the server was started
  Wishes wishes;                  // where a request says nothing
  std::vector<std::string> stop;  // in any case
  ToolFormat format = ToolFormat::none;
  bool thinks = false;  // <think> begins reasoning
  std::int64_t created = 0;
  std::shared_ptr<grammar::Compiler> grammars = nullptr;  // null: no structured output
};

struct Asking {
  std::vector<TextRequest> requests;  // one for each choice
  std::vector<std::string> before;    // what the text of each begins with; empty: nothing
  AnswerParts::Options parts;
  bool stream = false;
  bool one_call = false;            // an answer ends after its first call
  std::size_t answers_of_each = 1;  // prompt
  std::unique_ptr<Writer> writer;
  // Takes up to some seconds: a Refusal says why answers cannot follow their grammar. Empty: they
  // can, or there is none.
  std::function<void()> check_grammar;

  // Each prompt is answered so often, by other seeds.
  void repeat(std::size_t count);
};

constexpr std::size_t kMostChoices = 128, kMostStops = 16;

// A model of another name is a refusal.
void read_model(Fields& fields, const ServedModel& model);
// temperature, top_p and their like.
Wishes read_wishes(Fields& fields);
// How tokens are chosen and answers end; without a prompt.
TextRequest request_of(const ServedModel& model, const Wishes& wishes, const Fields& fields);
// stream and stream_options: whether the usage comes at the end.
bool read_streaming(Fields& fields, Asking& asking);
// What gateways put into requests of clients that did not ask for it: only as it asks for nothing.
void read_what_gateways_add(Fields& fields);
// logit_bias.
std::map<std::int64_t, double> read_bias(Fields& fields, std::int64_t vocabulary);
// That there is room and all can be done.
void check(const ServedModel& model, const std::vector<TextRequest>& requests);

// A text, or a list of parts of these types that have one; null: none.
std::string read_content(const Json* content, const std::string& where,
                         std::initializer_list<const char*> types = {"text"});
// {"name", "description", "parameters", "strict"}, checked, as templates expect it.
Json tool_of(Fields& function, ToolRules& rules);
// Which tools an answer may call, of those that are read. Null: none.
struct ToolChoice {
  bool none = false, demanded = false;
  std::string named = {};
};
Json chosen_tools(Json tools, const ToolChoice& choice, ToolRules& rules);
// A call that an assistant's message has; `arguments` is JSON as text, or an object.
Json call_of(const std::string& id, const std::string& name, const Json& arguments,
             const std::string& where);

// A conversation, and what belongs to it.
struct Chat {
  Json messages = Json::array();  // as chat templates expect them
  Json tools = nullptr;
  ToolRules tool_rules = {};
  Json variables = Json::object();  // of the template
  bool goes_on = false;             // the answer goes on with the last message
};
// Whether an answer can go on with a message, as templates expect it.
bool is_text_of_assistant(const Json& message);
// Makes the conversation the prompt of a request.
void set_prompt(const ServedModel& model, Chat conversation, TextRequest& request,
                AnswerParts::Options& parts);

// The APIs.
Asking read_chat(const Json& body, const ServedModel& model);
Asking read_completion(const Json& body, const ServedModel& model);
Asking read_messages(const Json& body, const ServedModel& model);  // Anthropic's
Asking read_response(const Json& body, const ServedModel& model);
// As read_chat and read_messages read them, where all else is left to the caller.
Json read_chat_messages(const Json& messages);
Chat read_messages_chat(Fields& fields);

}  // namespace ac::api
