#include "serve/service.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "serve/page.h"

namespace ac::serve {

namespace {

using Clock = std::chrono::steady_clock;

constexpr JsonLimits kRequestLimits{.bytes = 16u << 20, .depth = 64, .values = 1'000'000};
constexpr const char* kRetryAfter = "2";  // seconds

// Where an answer goes, and what is said of it in the log.
struct Destination {
  std::shared_ptr<HttpResponse> response;
  std::string client, method, path;
  bool is_known = false;  // the path is one of ours
  ErrorForm form = ErrorForm::openai;
  Clock::time_point since = Clock::now();
};

// Compares in the same time, whatever is alike.
bool same(std::string_view a, std::string_view b) {
  unsigned differences = a.size() != b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    differences |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differences == 0;
}

}  // namespace

struct Service::Impl {
  ServedModel model;
  Queue& queue;
  Metrics& metrics;
  ServiceOptions options;

  void log(const Destination& to, int status, const Reply* reply) {
    metrics.response(to.is_known ? to.path : "other", status);
    if (!options.logs) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - to.since).count();
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    std::string line =
        fmt::format("{} {} {} {} {:.3f} s", date, to.client,
                    quote((to.method + " " + to.path).substr(0, 100)), status, seconds);
    if (reply)
      line += fmt::format(", prompt {} (cached {}), answer {}", reply->prompt_tokens,
                          reply->cached_tokens, reply->completion_tokens);
    fmt::print(stderr, "{}\n", line);
  }

  void send(const Destination& to, int status, std::string body,
            const char* type = "application/json", const Reply* reply = nullptr) {
    HttpHead head{.status = status, .type = type};
    if (status == 503) head.fields.emplace_back("Retry-After", kRetryAfter);
    if (status == 401) head.fields.emplace_back("WWW-Authenticate", "Bearer");
    log(to, status, reply);
    to.response->send(std::move(head), std::move(body));
  }
  void send(const Destination& to, const Json& body, const Reply* reply = nullptr) {
    send(to, 200, dump(body), "application/json", reply);
  }
  void send(const Destination& to, const Refusal& refusal) {
    send(to, refusal.status, dump(to_json(refusal, to.form)));
  }

  void route(const HttpRequest& request, Destination& to);
  void authorise(const HttpRequest& request) const;
  Json body_of(const HttpRequest& request) const;
  void ask(Asking asking, Destination to, const char* prefix);
  Json models() const;
  Json tokenize(const Json& body) const;
  Json detokenize(const Json& body) const;
  Json count_tokens(const Json& body) const;

  class Answering;
};

// Puts the pieces of answers together, and writes them in the form of the API.
class Service::Impl::Answering : public Listener {
 public:
  Answering(Impl& service, Asking asking, Destination to, const char* prefix)
      : service_(service),
        to_(std::move(to)),
        parts_options_(asking.parts),
        stream_(asking.stream),
        one_call_(asking.one_call),
        answers_of_each_(asking.answers_of_each),
        before_(std::move(asking.before)),
        writer_(std::move(asking.writer)),
        call_id_length_(asking.parts.format == ToolFormat::mistral ? 9 : 0) {
    reply_.id = random_id(prefix);
    reply_.created = std::time(nullptr);
    reply_.model = service.model.name;
    reply_.fingerprint = service.model.fingerprint;
    reply_.choices.resize(asking.requests.size());
  }

  bool waits() const override { return !to_.response->is_gone() && !cut_; }

  void piece(std::size_t i, const TextPiece& piece) override {
    begin_choice(i);
    if (piece.logprobs) reply_.choices[i].logprobs.push_back({piece.token, *piece.logprobs});
    if (piece.token >= 0) ++reply_.completion_tokens;
    if (!piece.text.empty()) take(i, parts_->push(piece.text));
  }
  void answered(std::size_t i, const TextAnswer& whole) override {
    begin_choice(i);
    take(i, parts_->finish());
    Choice& choice = reply_.choices[i];
    choice.finish = whole.finish == "length" ? "length" : "stop";
    choice.stopped_by = whole.stopped_by;
    if (i % answers_of_each_ == 0) {
      reply_.prompt_tokens += whole.prompt_tokens;
      reply_.cached_tokens += whole.cached;
    }
    if (stream_) to_.response->write(writer_->ended(reply_, i));
    cut_ = false;
  }
  void done() override {
    if (!waits()) {
      service_.log(to_, 499, &reply_);  // as nginx has it: the client has left
      return to_.response->end();
    }
    if (!stream_) {
      try {
        return service_.send(to_, writer_->whole(reply_), &reply_);
      } catch (const std::exception& error) {
        return service_.send(to_, Refusal{500, error.what()});
      }
    }
    to_.response->write(writer_->done(reply_));
    to_.response->end();
    service_.log(to_, 200, &reply_);
  }
  void failed(const Error& error) override {
    const bool lost = error.fault() == Fault::device_lost;
    const Refusal refusal{
        error.fault() == Fault::bad_input ? 400 : 500,
        lost ? "the device failed, and the server ends: " + std::string(error.what())
             : error.what()};
    if (!begun_) return service_.send(to_, refusal);
    to_.response->write(writer_->failed(refusal));
    to_.response->end();
    service_.log(to_, refusal.status, &reply_);
  }

 private:
  void begin_choice(std::size_t i) {
    if (stream_ && !begun_) {
      begun_ = true;
      to_.response->begin(
          {.status = 200, .type = "text/event-stream", .fields = {{"Cache-Control", "no-cache"}}});
      to_.response->write(writer_->begin(reply_));
    }
    if (parts_ && choice_ == i) return;
    choice_ = i;
    parts_.emplace(parts_options_);
    if (!before_.empty()) take(i, {{Part::Kind::text, before_[i]}});
  }
  void take(std::size_t i, const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      Choice& choice = reply_.choices[i];
      if (cut_ || (part.kind != Part::Kind::call && part.text.empty())) continue;
      if (one_call_ && !choice.calls.empty() && part.kind != Part::Kind::arguments) {
        cut_ = true;
        continue;
      }
      choice.add(part, call_id_length_ > 0 ? random_id("", call_id_length_) : random_id("call_"));
      if (stream_) to_.response->write(writer_->part(reply_, i, part));
    }
  }

  Impl& service_;
  const Destination to_;
  const AnswerParts::Options parts_options_;
  const bool stream_, one_call_;
  const std::size_t answers_of_each_;
  const std::vector<std::string> before_;
  const std::unique_ptr<Writer> writer_;
  const std::size_t call_id_length_;
  std::optional<AnswerParts> parts_;  // of the choice
  std::size_t choice_ = 0;
  Reply reply_;
  bool begun_ = false;
  std::atomic<bool> cut_ = false;  // the answer has all that was asked for
};

Service::Service(ServedModel model, Queue& queue, Metrics& metrics, ServiceOptions options)
    : impl_(new Impl{std::move(model), queue, metrics, std::move(options)}) {}
Service::~Service() = default;

std::string Service::refusal(int status, const std::string& message) {
  return dump(to_json({status, message}, ErrorForm::openai));
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpResponse> response) {
  Destination to{.response = std::move(response),
                 .client = request.client,
                 .method = request.method,
                 .path = request.path};
  try {
    impl_->route(request, to);
  } catch (const Refusal& refusal) {
    impl_->send(to, refusal);
  } catch (const Error& error) {
    impl_->send(to, Refusal{error.fault() == Fault::bad_input ? 400 : 500, error.what()});
  } catch (const std::exception& error) {
    impl_->send(to, Refusal{500, error.what()});
  }
}

void Service::Impl::authorise(const HttpRequest& request) const {
  if (options.keys.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view key = request.api_key;
  if (request.authorization.starts_with(kBearer))
    key = std::string_view(request.authorization).substr(kBearer.size());
  bool known = false;
  for (const std::string& each : options.keys) known |= same(each, key);
  if (!known)
    throw Refusal{
        401,
        key.empty() ? "an API key is needed: Authorization: Bearer KEY" : "the API key is wrong",
        {},
        "invalid_api_key"};
}

Json Service::Impl::body_of(const HttpRequest& request) const {
  // A page of another origin can send other types without asking.
  const std::string type = request.content_type.substr(0, request.content_type.find(';'));
  if (type != "application/json" && type != "application/json ")
    throw Refusal{415, "the Content-Type is " + (type.empty() ? "missing" : quote(type)) +
                           ": send application/json"};
  return parse_json(request.body, "the body", kRequestLimits);
}

void Service::Impl::route(const HttpRequest& request, Destination& to) {
  struct Route {
    const char *path, *method;
    std::function<void()> serve;
    bool is_open = false;  // without a key
  };
  const auto json = [&](Json (Impl::*make)(const Json&) const) {
    return [this, &request, &to, make] { send(to, (this->*make)(body_of(request))); };
  };
  const auto asks = [&](Asking (*read)(const Json&, const ServedModel&), const char* prefix) {
    return [this, &request, &to, read, prefix] {
      if (queue.is_closed()) throw Refusal{503, "the server is ending"};
      ask(read(body_of(request), model), to, prefix);
    };
  };
  const Route routes[] = {
      {"/", "GET", [&] { send(to, 200, std::string(chat_page()), "text/html; charset=utf-8"); },
       true},
      {"/health", "GET",
       [&] {
         if (queue.is_closed()) throw Refusal{503, "the server is ending"};
         send(to, {{"status", "ok"}});
       },
       true},
      {"/metrics", "GET", [&] { send(to, 200, metrics.text(), "text/plain; version=0.0.4"); }},
      {"/v1/models", "GET", [&] { send(to, models()); }},
      {"/v1/chat/completions", "POST", asks(read_chat, "chatcmpl-")},
      {"/v1/completions", "POST", asks(read_completion, "cmpl-")},
      {"/v1/messages", "POST", asks(read_messages, "msg_")},
      {"/v1/messages/count_tokens", "POST", json(&Impl::count_tokens)},
      {"/v1/responses", "POST", asks(read_response, "resp_")},
      {"/tokenize", "POST", json(&Impl::tokenize)},
      {"/detokenize", "POST", json(&Impl::detokenize)},
  };
  if (request.path.starts_with("/v1/messages")) to.form = ErrorForm::anthropic;
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const std::string one_model = "/v1/models/" + model.name;
  if (request.path == one_model && method == "GET") {
    authorise(request);
    return send(to, models()["data"][0]);
  }
  for (const Route& route : routes) {
    if (request.path != route.path) continue;
    to.is_known = true;
    if (!route.is_open) authorise(request);
    if (method != route.method)
      throw Refusal{405, fmt::format("{} takes {}, and no {}", route.path, route.method,
                                     quote(request.method))};
    return route.serve();
  }
  authorise(request);
  throw Refusal{404, fmt::format("there is no {}", quote(request.path))};
}

void Service::Impl::ask(Asking asking, Destination to, const char* prefix) {
  std::vector<TextRequest> requests = std::move(asking.requests);
  asking.requests = requests;
  const auto listener =
      std::make_shared<Answering>(*this, std::move(asking), std::move(to), prefix);
  switch (queue.add(std::move(requests), listener)) {
    case Queue::Added::yes:
      return;
    case Queue::Added::full:
      throw Refusal{503, "too many requests wait already: try again later"};
    case Queue::Added::closed:
      throw Refusal{503, "the server is ending"};
  }
}

Json Service::Impl::models() const {
  const Json one{{"id", model.name},
                 {"object", "model"},
                 {"created", model.created},
                 {"owned_by", "agentcompile"},
                 {"max_model_len", model.context},
                 {"system_fingerprint", model.fingerprint}};
  return {{"object", "list"}, {"data", Json::array({one})}};
}

Json Service::Impl::tokenize(const Json& body) const {
  Fields fields(body);
  read_model(fields, model);
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  const auto prompt = fields.text("prompt");
  const Json* const messages = fields.array("messages");
  fields.refuse_rest();
  if (prompt.has_value() == (messages != nullptr))
    refuse("prompt", "give either a prompt or messages");
  std::vector<std::int64_t> ids;
  if (prompt) {
    const auto encoded = model.text.tokenizer().encode(*prompt, {.add_special = special});
    ids = {encoded.begin(), encoded.end()};
  } else {
    TextRequest request;
    AnswerParts::Options parts;
    set_prompt(model, {.messages = read_chat_messages(*messages)}, request, parts);
    ids = request.ids;
  }
  return {{"count", ids.size()}, {"max_model_len", model.context}, {"tokens", ids}};
}

Json Service::Impl::detokenize(const Json& body) const {
  Fields fields(body);
  read_model(fields, model);
  fields.need("tokens");
  const Json& list = *fields.array("tokens");
  fields.refuse_rest();
  std::vector<text::TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= text::kMostTokens ||
        !model.text.tokenizer().has(id.get<text::TokenId>()))
      refuse("tokens", "{} is no id of a token", shown(id));
    ids.push_back(id.get<text::TokenId>());
  }
  return {{"prompt", model.text.tokenizer().decode(ids, false)}};
}

Json Service::Impl::count_tokens(const Json& body) const {
  Fields fields(body);
  read_model(fields, model);
  TextRequest request;
  AnswerParts::Options parts;
  set_prompt(model, read_messages_conversation(fields), request, parts);
  fields.refuse_rest();
  return {{"input_tokens", request.ids.size()}};
}

}  // namespace ac::serve
