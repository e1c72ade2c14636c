#include "serve/service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/beast/core/string.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "api/request_body.h"
#include "base/error.h"
#include "base/print_stderr.h"
#include "base/text.h"
#include "serve/page.h"
#include "serve/task_thread.h"

namespace ac::serve {

namespace {

using Clock = std::chrono::steady_clock;

constexpr JsonLimits kRequestLimits{.bytes = 16u << 20, .depth = 64, .values = 1'000'000};

// Where an answer goes, and what is said of it in the log.
struct Destination {
  std::shared_ptr<HttpResponse> response;
  std::string client, method, path;
  bool is_known = false;        // the path is one of ours
  const char* takes = nullptr;  // methods of that path, where another one was sent
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

// A path as it is meant: a client may write "%2F" for a slash.
std::string unescaped(std::string_view path) {
  std::string plain;
  for (std::size_t at = 0; at < path.size(); ++at) {
    unsigned char byte = 0;
    const char* const digits = path.data() + at + 1;
    if (path[at] == '%' && path.size() - at > 2 &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      plain += static_cast<char>(byte);
      at += 2;
    } else {
      plain += path[at];
    }
  }
  return plain;
}

}  // namespace

struct Service::Impl {
  class Answering;

  std::vector<ServedModel> models;
  Queue& queue;
  Metrics& metrics;
  ServiceOptions options;
  TaskThread grammars{options.most_waiting};

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
                          reply->cached_tokens, reply->completion_tokens());
    print_stderr("{}\n", line);
  }

  void send(const Destination& to, int status, std::string body,
            const char* type = "application/json", const Reply* reply = nullptr) {
    HttpHead head{.status = status, .type = type};
    if (status == 503) head.fields.emplace_back("Retry-After", kRetryAfter);
    if (to.takes != nullptr) head.fields.emplace_back("Allow", to.takes);
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
  const ServedModel& model_of(const Json& body) const;
  std::string names() const;
  void ask(const ServedModel& model, Asking asking, const Destination& to, const char* prefix);
  void queue_up(const ServedModel& model, std::vector<TextRequest> requests,
                std::shared_ptr<Answering> listener);
  std::size_t place_of(const ServedModel& model) const {
    return static_cast<std::size_t>(&model - models.data());
  }
  std::string fingerprint_of(const ServedModel& model) const {
    const std::string run = queue.fingerprint(place_of(model));
    return run.empty() ? model.fingerprint : run;
  }
  Json shown(const ServedModel& model) const;
  Json all_models() const;
  Json server_info() const;
  static Json tokenize(const Json& body, const ServedModel& model);
  static Json detokenize(const Json& body, const ServedModel& model);
  static Json count_tokens(const Json& body, const ServedModel& model);
};

// Puts the pieces of answers together, and writes them in the form of the API.
class Service::Impl::Answering : public Listener {
 public:
  Answering(Impl& service, const ServedModel& model, Asking asking, Destination to,
            const char* prefix)
      : service_(service),
        model_(model),
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
    reply_.model = model.name;
    reply_.choices.resize(asking.requests.size());
    parts_.resize(asking.requests.size());
    cut_.resize(asking.requests.size());
  }

  bool waits() const override { return !to_.response->is_gone(); }
  bool wants(std::size_t i) const override { return !cut_[i]; }

  void piece(std::size_t i, const TextPiece& piece) override {
    begin_choice(i);
    if (piece.logprobs) reply_.choices[i].logprobs.push_back({piece.token, *piece.logprobs});
    if (piece.token >= 0) ++reply_.choices[i].tokens;
    if (!piece.text.empty()) take(i, parts_[i]->push(piece.text));
  }
  void answered(std::size_t i, const TextAnswer& whole) override {
    begin_choice(i);
    take(i, parts_[i]->finish());
    Choice& choice = reply_.choices[i];
    choice.finish = whole.finish == "length" ? "length" : "stop";
    choice.stopped_by = whole.stopped_by;
    if (i % answers_of_each_ == 0) {
      reply_.prompt_tokens += whole.prompt_tokens;
      reply_.cached_tokens += whole.cached;
    }
    if (stream_) to_.response->write(writer_->ended(reply_, i));
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
    refused({error.fault() == Fault::bad_input ? 400 : 500, error.what()});
  }
  void refused(const Refusal& refusal) {
    if (!begun_) return service_.send(to_, refusal);
    to_.response->write(writer_->failed(refusal));
    to_.response->end();
    service_.log(to_, refusal.status, &reply_);
  }

 private:
  void begin_choice(std::size_t i) {
    if (reply_.fingerprint.empty()) reply_.fingerprint = service_.fingerprint_of(model_);
    if (stream_ && !begun_) {
      begun_ = true;
      to_.response->begin(
          {.status = 200, .type = "text/event-stream", .fields = {{"Cache-Control", "no-cache"}}});
      to_.response->write(writer_->begin(reply_));
    }
    if (parts_[i]) return;
    parts_[i].emplace(parts_options_);
    if (!before_.empty()) take(i, {{Part::Kind::text, before_[i]}});
  }
  void take(std::size_t i, const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      Choice& choice = reply_.choices[i];
      if (cut_[i] || (part.kind != Part::Kind::call && part.text.empty())) continue;
      if (one_call_ && !choice.calls.empty() && part.kind != Part::Kind::arguments) {
        cut_[i] = true;
        continue;
      }
      choice.add(part, call_id_length_ > 0 ? random_id("", call_id_length_) : random_id("call_"));
      if (stream_) to_.response->write(writer_->part(reply_, i, part));
    }
  }

  Impl& service_;
  const ServedModel& model_;
  const Destination to_;
  const AnswerParts::Options parts_options_;
  const bool stream_, one_call_;
  const std::size_t answers_of_each_;
  const std::vector<std::string> before_;
  const std::unique_ptr<Writer> writer_;
  const std::size_t call_id_length_;
  std::vector<std::optional<AnswerParts>> parts_;  // of each choice
  Reply reply_;
  bool begun_ = false;
  std::vector<bool> cut_;  // of each choice: the answer has all that was asked for
};

Service::Service(std::vector<ServedModel> models, Queue& queue, Metrics& metrics,
                 ServiceOptions options)
    : impl_(new Impl{std::move(models), queue, metrics, std::move(options)}) {
  AC_ASSERT(!impl_->models.empty());
}
Service::~Service() = default;
void Service::stop() { impl_->grammars.stop(); }

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
  static const std::string kBearer = "Bearer ";
  std::string_view key = request.api_key;
  if (boost::beast::iequals(request.authorization.substr(0, kBearer.size()), kBearer))
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
  std::string type = request.content_type.substr(0, request.content_type.find(';'));
  type.erase(type.find_last_not_of(" \t") + 1);
  if (!boost::beast::iequals(type, "application/json"))
    throw Refusal{415, "the Content-Type is " + (type.empty() ? "missing" : quote(type)) +
                           ": send application/json"};
  if (const std::string& coding = request.content_encoding;
      !coding.empty() && !boost::beast::iequals(coding, "identity"))
    throw Refusal{415, "the Content-Encoding is " + quote(coding) + ": send the body as it is"};
  return read_body(request.body, kRequestLimits);
}

void Service::Impl::route(const HttpRequest& request, Destination& to) {
  struct Route {
    const char *path, *method;
    std::function<void()> serve;
    bool is_open = false;  // without a key
  };
  const auto json = [&](Json (*make)(const Json&, const ServedModel&)) {
    return [this, &request, &to, make] {
      const Json body = body_of(request);
      send(to, make(body, model_of(body)));
    };
  };
  const auto asks = [&](Asking (*read)(const Json&, const ServedModel&), const char* prefix) {
    return [this, &request, &to, read, prefix] {
      if (const std::string why = queue.why_not(); !why.empty()) throw Refusal{503, why};
      const Json body = body_of(request);
      const ServedModel& model = model_of(body);
      ask(model, read(body, model), to, prefix);
    };
  };
  const Route routes[] = {
      {"/", "GET", [&] { send(to, 200, std::string(chat_page()), "text/html; charset=utf-8"); },
       true},
      {"/health", "GET",
       [&] {
         if (const std::string why = queue.why_not(); !why.empty()) throw Refusal{503, why};
         send(to, {{"status", "ok"}});
       },
       true},
      {"/metrics", "GET", [&] { send(to, 200, metrics.text(), "text/plain; version=0.0.4"); }},
      {"/v1/models", "GET", [&] { send(to, all_models()); }},
      {"/server_info", "GET", [&] { send(to, server_info()); }},
      {"/v1/chat/completions", "POST", asks(read_chat, "chatcmpl-")},
      {"/v1/completions", "POST", asks(read_completion, "cmpl-")},
      {"/v1/messages", "POST", asks(read_messages, "msg_")},
      {"/v1/messages/count_tokens", "POST", json(count_tokens)},
      {"/v1/responses", "POST", asks(read_response, "resp_")},
      {"/tokenize", "POST", json(tokenize)},
      {"/detokenize", "POST", json(detokenize)},
  };
  if (request.path.starts_with("/v1/messages")) to.form = ErrorForm::anthropic;
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const ServedModel& model : models)
    if (unescaped(request.path) == "/v1/models/" + model.name && method == "GET") {
      authorise(request);
      return send(to, shown(model));
    }
  for (const Route& route : routes) {
    if (request.path != route.path) continue;
    to.is_known = true;
    if (!route.is_open) authorise(request);
    if (method != route.method) {
      to.takes = route.method == std::string_view("GET") ? "GET, HEAD" : route.method;
      throw Refusal{405, fmt::format("{} takes {}, and no {}", route.path, route.method,
                                     quote(request.method))};
    }
    return route.serve();
  }
  authorise(request);
  throw Refusal{404, fmt::format("there is no {}", quote(request.path))};
}

// The one that is named, or the only one. A name that no model has is refused by who reads it.
const ServedModel& Service::Impl::model_of(const Json& body) const {
  if (models.size() == 1 || !body.is_object()) return models.front();
  const auto name = body.find("model");
  if (name == body.end() || name->is_null()) refuse("model", "say which: {}", names());
  for (const ServedModel& model : models)
    if (*name == model.name) return model;
  throw Refusal{404,
                fmt::format("there is no model {}; this server has {}", api::shown(*name), names()),
                "model", "model_not_found"};
}

std::string Service::Impl::names() const {
  std::vector<std::string> all;
  for (const ServedModel& model : models) all.push_back(Json(model.name).dump());
  return fmt::format("{}", fmt::join(all, ", "));
}

void Service::Impl::ask(const ServedModel& model, Asking asking, const Destination& to,
                        const char* prefix) {
  std::vector<TextRequest> requests = std::move(asking.requests);
  asking.requests = requests;
  const auto check_grammar = std::move(asking.check_grammar);
  auto listener = std::make_shared<Answering>(*this, model, std::move(asking), to, prefix);
  if (!check_grammar) return queue_up(model, std::move(requests), std::move(listener));
  // Others are heard meanwhile.
  const bool added = grammars.add([=, this, &model](bool stopped) mutable {
    try {
      if (stopped) throw Refusal{503, "the server is ending"};
      if (!listener->waits()) return listener->done();
      check_grammar();
      queue_up(model, std::move(requests), listener);
    } catch (const Refusal& refusal) {
      listener->refused(refusal);
    } catch (const std::exception& error) {
      listener->refused({500, error.what()});
    }
  });
  if (!added) throw Refusal{503, "too many requests wait for their grammars: try again later"};
}

void Service::Impl::queue_up(const ServedModel& model, std::vector<TextRequest> requests,
                             std::shared_ptr<Answering> listener) {
  switch (queue.add(place_of(model), std::move(requests), std::move(listener))) {
    case Queue::Added::yes:
      return;
    case Queue::Added::full:
      throw Refusal{503, "too many requests wait already: try again later"};
    case Queue::Added::refused:
      throw Refusal{503, queue.why_not()};
  }
}

Json Service::Impl::shown(const ServedModel& model) const {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "agentcompile"},
          {"max_model_len", model.context},
          {"system_fingerprint", fingerprint_of(model)}};
}

// What SGLang's gateway takes a worker's model from.
Json Service::Impl::server_info() const {
  Json info = Json::object();
  if (models.size() == 1) info["served_model_name"] = models.front().name;
  return info;
}

Json Service::Impl::all_models() const {
  Json all = Json::array();
  for (const ServedModel& model : models) all.push_back(shown(model));
  return {{"object", "list"}, {"data", std::move(all)}};
}

Json Service::Impl::tokenize(const Json& body, const ServedModel& model) {
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

Json Service::Impl::detokenize(const Json& body, const ServedModel& model) {
  Fields fields(body);
  read_model(fields, model);
  fields.need("tokens");
  const Json& list = *fields.array("tokens");
  fields.refuse_rest();
  std::vector<text::TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= text::kMostTokens ||
        !model.text.tokenizer().has(id.get<text::TokenId>()))
      refuse("tokens", "{} is no id of a token", api::shown(id));
    ids.push_back(id.get<text::TokenId>());
  }
  return {{"prompt", model.text.tokenizer().decode(ids, false)}};
}

Json Service::Impl::count_tokens(const Json& body, const ServedModel& model) {
  Fields fields(body);
  read_model(fields, model);
  TextRequest request;
  AnswerParts::Options parts;
  set_prompt(model, read_messages_chat(fields), request, parts);
  fields.ignore({"output_config", "cache_control"});
  fields.refuse_rest();
  return {{"input_tokens", request.ids.size()}};
}

}  // namespace ac::serve
