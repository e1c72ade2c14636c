// OpenAI's /v1/completions: the model goes on with a text.
#include "api/asking.h"
#include "ask/packed_ids.h"
#include "text/unicode.h"

namespace ac::api {
namespace {

class CompletionWriter : public Writer {
 public:
  CompletionWriter(const text::Tokenizer& tokenizer, bool usage, bool logprobs)
      : tokenizer_(tokenizer), usage_(usage), logprobs_(logprobs) {}

  Json whole(const Reply& reply) const override {
    Json result = head(reply);
    result["choices"] = Json::array();
    for (std::size_t i = 0; i < reply.choices.size(); ++i) {
      const Choice& choice = reply.choices[i];
      std::size_t offset = 0;
      result["choices"].push_back({{"text", choice.text},
                                   {"index", i},
                                   {"logprobs", logprobs_of(choice, 0, offset)},
                                   {"finish_reason", choice.finish}});
    }
    result["usage"] = usage_of(reply);
    return result;
  }
  std::string begin(const Reply& reply) override {
    sent_.resize(reply.choices.size());
    offsets_.resize(reply.choices.size());
    return {};
  }
  std::string part(const Reply& reply, std::size_t choice, const Part& part) override {
    return chunk(reply, choice, part.text, nullptr);
  }
  std::string ended(const Reply& reply, std::size_t choice) override {
    return chunk(reply, choice, "", reply.choices[choice].finish);
  }
  std::string done(const Reply& reply) override {
    std::string events;
    if (usage_) {
      Json last = head(reply);
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
  static Json head(const Reply& reply) {
    return {{"id", reply.id},
            {"object", "text_completion"},
            {"created", reply.created},
            {"model", reply.model},
            {"system_fingerprint", reply.fingerprint}};
  }
  static Json usage_of(const Reply& reply) {
    return {{"prompt_tokens", reply.prompt_tokens},
            {"completion_tokens", reply.completion_tokens()},
            {"total_tokens", reply.prompt_tokens + reply.completion_tokens()},
            {"prompt_tokens_details", {{"cached_tokens", reply.cached_tokens}}}};
  }
  std::string text_of(std::int64_t token) const {
    const auto id = static_cast<text::TokenId>(token);
    return tokenizer_.has(id) ? tokenizer_.decode(std::vector<text::TokenId>{id}, false)
                              : std::string();
  }
  // `offset`: where the text of the next token begins.
  Json logprobs_of(const Choice& choice, std::size_t from, std::size_t& offset) const {
    if (!logprobs_) return nullptr;
    Json tokens = Json::array(), own = Json::array(), top = Json::array(), offsets = Json::array();
    for (; from < choice.logprobs.size(); ++from) {
      const Logprob& each = choice.logprobs[from];
      const std::string text = text_of(each.token);
      tokens.push_back(text);
      own.push_back(each.values.own);
      Json likeliest = Json::object();
      for (const auto& [token, logprob] : each.values.likeliest)
        likeliest.emplace(text_of(token), logprob);  // of equal texts, the likelier one
      top.push_back(likeliest);
      offsets.push_back(offset);
      offset += text::count_characters(text);
    }
    return {{"tokens", tokens},
            {"token_logprobs", own},
            {"top_logprobs", top},
            {"text_offset", offsets}};
  }
  std::string chunk(const Reply& reply, std::size_t i, const std::string& text, Json finish) {
    Json chunk = head(reply);
    const Choice& choice = reply.choices[i];
    const bool has_more = logprobs_ && sent_[i] < choice.logprobs.size();
    const Json one{{"text", text},
                   {"index", i},
                   {"logprobs", has_more ? logprobs_of(choice, sent_[i], offsets_[i]) : Json()},
                   {"finish_reason", finish}};
    sent_[i] = choice.logprobs.size();
    chunk["choices"] = Json::array({one});
    return event(chunk);
  }

  const text::Tokenizer& tokenizer_;
  const bool usage_, logprobs_;
  std::vector<std::size_t> sent_, offsets_;  // of the logprobs of each choice
};

std::vector<std::int64_t> read_ids(const Json& list, const std::string& where) {
  if (list.is_binary()) return unpacked(list);
  std::vector<std::int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= text::kMostTokens)
      refuse(where, "{} is no id of a token", shown(id));
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

// A text, ids, or a list of either.
void read_prompts(const Json& prompt, const ServedModel& model, const TextRequest& like,
                  Asking& asking, bool echo) {
  const auto add = [&](const Json& one, const std::string& where) {
    TextRequest request = like;
    std::string text;
    if (one.is_string()) {
      text = one.get<std::string>();
      request.ids = model.text.ids_of_text(text, false);
    } else if (one.is_array() || one.is_binary()) {
      request.ids = read_ids(one, where);
      if (echo)
        for (const std::int64_t id : request.ids)
          if (!model.text.tokenizer().has(static_cast<text::TokenId>(id)))
            refuse(where, "no token has the id {}", id);
      if (echo)
        text = model.text.tokenizer().decode(
            std::vector<text::TokenId>(request.ids.begin(), request.ids.end()), true);
    } else {
      refuse(where, "{} is neither a string nor a list of ids", shown(one));
    }
    request.continues = true;
    asking.requests.push_back(std::move(request));
    if (echo) asking.before.push_back(std::move(text));
  };
  const bool several = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  if (!several) return add(prompt, "prompt");
  if (prompt.size() > kMostChoices)
    refuse("prompt", "there are {}, more than {}", prompt.size(), kMostChoices);
  for (std::size_t i = 0; i < prompt.size(); ++i) add(prompt[i], fmt::format("prompt[{}]", i));
}

}  // namespace

Asking read_completion(const Json& body, const ServedModel& model) {
  Fields fields(body);
  read_model(fields, model);
  Asking asking;
  Wishes wishes = read_wishes(fields);
  const bool echo = fields.boolean("echo").value_or(false);
  wishes.max_new_tokens = fields.integer("max_tokens", echo ? 0 : 1, 1 << 30).value_or(16);
  TextRequest request = request_of(model, wishes, fields);
  for (const std::string& stop : fields.texts("stop", kMostStops)) request.stop.push_back(stop);
  request.bias = read_bias(fields, model.vocabulary);
  if (const auto logprobs = fields.integer("logprobs", 0, 20)) {
    if (echo)
      fields.wrong("logprobs", "those of the prompt, which echo asks for, are not supported");
    request.logprobs = static_cast<int>(*logprobs);
  }
  const bool usage = read_streaming(fields, asking);
  std::optional<grammar::Form> form = read_structured_outputs(fields);
  if (const Json* const format = fields.object("response_format"))
    form = one_of(form, read_format(*format, "response_format"));
  const auto count = static_cast<std::size_t>(fields.integer("n", 1, kMostChoices).value_or(1));
  if (const auto best = fields.integer("best_of", 1, kMostChoices);
      best && *best != static_cast<std::int64_t>(count))
    fields.wrong("best_of", "only as many as n are supported");
  fields.only("suffix", "", "the model goes on with a text, and fills no gap");
  read_what_gateways_add(fields);
  fields.only("continue_final_message", false, "a completion has no messages");
  fields.ignore({"user"});
  const Json& prompt = fields.need("prompt");
  fields.refuse_rest();

  if (form) set_rules(model, *form, asking, request);
  const bool logprobs = request.logprobs.has_value();
  read_prompts(prompt, model, request, asking, echo);
  check(model, asking.requests);
  if (count * asking.requests.size() > kMostChoices)
    fields.wrong("n", "{} answers to {} prompts are more than {}", count, asking.requests.size(),
                 kMostChoices);
  asking.repeat(count);
  asking.writer = std::make_unique<CompletionWriter>(model.text.tokenizer(), usage, logprobs);
  return asking;
}

}  // namespace ac::api
