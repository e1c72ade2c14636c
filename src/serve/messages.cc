#include "serve/messages.h"

#include <array>
#include <utility>

#include "ask/packed_ids.h"

namespace ac::serve {
namespace {

// A list, in the order of the members: short, as there is a message for each token.
template <class... Values>
Json list(Values&&... values) {
  return Json::array({Json(std::forward<Values>(values))...});
}

template <class Value>
Json maybe(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}
template <class Value>
void read(const Json& json, std::optional<Value>& value) {
  if (!json.is_null()) value = json.get<Value>();
}

// The whole, and then the parts.
Json body_of(const grammar::Source& source) {
  Json forms = Json::array();
  const auto add = [&](const grammar::Form& form) {
    forms.push_back(list(static_cast<int>(form.kind), form.text, form.where));
  };
  add(source.whole);
  for (const grammar::Form& part : source.parts) add(part);
  return forms;
}

grammar::Source source_of(const Json& json) {
  const auto form_of = [](const Json& form) {
    return grammar::Form{static_cast<grammar::Form::Kind>(form.at(0).get<int>()),
                         form.at(1).get<std::string>(), form.at(2).get<std::string>()};
  };
  grammar::Source source{.whole = form_of(json.at(0))};
  for (std::size_t i = 1; i < json.size(); ++i) source.parts.push_back(form_of(json[i]));
  return source;
}

Json body_of(const Ask& ask) {
  const TextRequest& request = ask.request;
  const Sampling& sampling = request.sampling;
  const Penalties& penalties = request.penalties;
  const grammar::Rules& rules = request.rules;
  Json bias = Json::array();
  for (const auto& [token, value] : request.bias) bias.push_back(list(token, value));
  return list(
      packed(request.ids), request.continues, maybe(request.max_new_tokens),
      list(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.seed),
      list(penalties.repeat, penalties.presence, penalties.frequency), bias, request.stop,
      request.shown, maybe(request.logprobs), static_cast<int>(request.reuse),
      rules.source ? body_of(*rules.source) : Json(),
      list(rules.trigger, static_cast<int>(rules.reasoning), rules.opens, rules.closes),
      ask.number);
}

Ask ask_of(const Json& json) {
  Ask ask;
  TextRequest& request = ask.request;
  request.ids = unpacked(json.at(0));
  request.continues = json.at(1);
  read(json.at(2), request.max_new_tokens);
  const Json& sampling = json.at(3);
  request.sampling = {.temperature = sampling.at(0),
                      .top_k = sampling.at(1),
                      .top_p = sampling.at(2),
                      .min_p = sampling.at(3),
                      .seed = sampling.at(4)};
  const Json& penalties = json.at(4);
  request.penalties = {
      .repeat = penalties.at(0), .presence = penalties.at(1), .frequency = penalties.at(2)};
  for (const Json& each : json.at(5))
    request.bias.emplace(each.at(0).get<std::int64_t>(), each.at(1).get<double>());
  request.stop = json.at(6).get<std::vector<std::string>>();
  request.shown = json.at(7).get<std::set<text::TokenId>>();
  read(json.at(8), request.logprobs);
  request.reuse = static_cast<Reuse>(json.at(9).get<int>());
  if (!json.at(10).is_null())
    request.rules.source = std::make_shared<const grammar::Source>(source_of(json.at(10)));
  const Json& rules = json.at(11);
  request.rules.trigger = rules.at(0);
  request.rules.reasoning = static_cast<grammar::Rules::Reasoning>(rules.at(1).get<int>());
  request.rules.opens = rules.at(2);
  request.rules.closes = rules.at(3);
  ask.number = json.at(12);
  return ask;
}

Json body_of(const Stop& stop) { return stop.number; }

Json body_of(const Loaded& loaded) {
  return list(loaded.max_context, loaded.fingerprint, loaded.piece);
}

Json body_of(const Begun& begun) { return begun.number; }

Json body_of(const Piece& of) {
  const TextPiece& piece = of.piece;
  if (!piece.logprobs) return list(of.number, piece.token, piece.text);
  Json likeliest = Json::array();
  for (const auto& [token, logprob] : piece.logprobs->likeliest)
    likeliest.push_back(list(token, logprob));
  return list(of.number, piece.token, piece.text, piece.logprobs->own, likeliest);
}

Piece piece_of(const Json& json) {
  Piece of{.piece = {.text = json.at(2), .token = json.at(1)}, .number = json.at(0)};
  if (json.size() == 3) return of;
  TextPiece& piece = of.piece;
  piece.logprobs = {.own = json.at(3), .likeliest = {}};
  for (const Json& each : json.at(4))
    piece.logprobs->likeliest.emplace_back(each.at(0).get<std::int64_t>(),
                                           each.at(1).get<double>());
  return of;
}

Json body_of(const std::optional<PrefixCounts>& counts) {
  if (!counts) return nullptr;
  Json places = Json::array();
  for (const PrefixCounts::Place& place : counts->places)
    places.push_back(list(place.tokens, place.evictions, place.bytes, place.room));
  return list(places, counts->damaged_files);
}

std::optional<PrefixCounts> counts_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  PrefixCounts counts;
  for (std::size_t i = 0; i < counts.places.size(); ++i) {
    const Json& place = json.at(0).at(i);
    counts.places[i] = {
        .tokens = place.at(0), .evictions = place.at(1), .bytes = place.at(2), .room = place.at(3)};
  }
  counts.damaged_files = json.at(1);
  return counts;
}

Json body_of(const Answered& answered) {
  const TextAnswer& answer = answered.answer;
  return list(answer.finish, answer.stopped_by, answer.prompt_tokens, answer.cached,
              answered.cached_tokens, body_of(answered.counts), answered.number);
}

Answered answered_of(const Json& json) {
  Answered answered;
  answered.answer.finish = json.at(0);
  answered.answer.stopped_by = json.at(1);
  answered.answer.prompt_tokens = json.at(2);
  answered.answer.cached = json.at(3);
  answered.cached_tokens = json.at(4);
  answered.counts = counts_of(json.at(5));
  answered.number = json.at(6);
  return answered;
}

Json body_of(const Kept& kept) { return body_of(kept.counts); }

Json body_of(const Failed& failed) {
  return list(static_cast<int>(failed.fault), failed.message, failed.number);
}

template <class Message>
Json message_of(const Message& message) {
  return list(message.index(), std::visit([](const auto& each) { return body_of(each); }, message));
}

template <class Work>
auto watched(Work work) {
  try {
    return work();
  } catch (const Json::exception& error) {
    job_failed("a message of another process is damaged: {}", error.what());
  }
}

}  // namespace

Json json_of(const ToWorker& message) { return message_of(message); }
Json json_of(const FromWorker& message) { return message_of(message); }

ToWorker to_worker(const Json& json) {
  return watched([&]() -> ToWorker {
    if (json.at(0) == ToWorker(Stop{}).index()) return Stop{json.at(1)};
    return ask_of(json.at(1));
  });
}

FromWorker from_worker(const Json& json) {
  return watched([&]() -> FromWorker {
    const Json& body = json.at(1);
    switch (json.at(0).get<int>()) {
      case 0:
        return Loaded{.max_context = body.at(0), .fingerprint = body.at(1), .piece = body.at(2)};
      case 1:
        return Begun{body};
      case 2:
        return piece_of(body);
      case 3:
        return answered_of(body);
      case 4:
        return Kept{counts_of(body)};
      case 5:
        return Failed{static_cast<Fault>(body.at(0).get<int>()), body.at(1), body.at(2)};
      default:
        job_failed("a message of another process is of no known kind");
    }
  });
}

}  // namespace ac::serve
