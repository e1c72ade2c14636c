#include "answer/answerer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "answer/answer_text.h"
#include "base/error.h"
#include "program/traffic.h"

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Tokens are computed some steps ahead of those that are given: the pace of fewer says nothing.
constexpr int kTimedTokens = 16;

TokenLogprobs logprobs_of(const std::vector<double>& logits, std::int64_t token, int likeliest) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  const double whole = most + std::log(sum);
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto count = std::min<std::ptrdiff_t>(likeliest, std::ssize(order));
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      return std::pair(-logit(a), a) < std::pair(-logit(b), b);
                    });
  TokenLogprobs result{.own = logit(token) - whole, .likeliest = {}};
  for (std::ptrdiff_t i = 0; i < count; ++i)
    result.likeliest.emplace_back(order[static_cast<std::size_t>(i)],
                                  logit(order[static_cast<std::size_t>(i)]) - whole);
  return result;
}

std::int64_t room_for(const TextRequest& request, const Program& program) {
  return program.max_context - std::ssize(request.ids) + 1;  // the last one is not run
}

TokenRequest tokens_of(const TextRequest& request, const ModelText& text, const Program& program) {
  if (request.ids.empty())
    bad_input("the prompt is empty, and the tokenizer puts nothing before a text: write some text");
  const std::int64_t room = room_for(request, program);
  if (room < 1) bad_input("{}, and the prompt has {}", room_of(program), request.ids.size());
  TokenRequest tokens{.ids = request.ids,
                      .max_new_tokens = std::min(request.max_new_tokens.value_or(room), room),
                      .stop_ids = {},
                      .sampling = request.sampling,
                      .penalties = request.penalties,
                      .bias = request.bias,
                      .wants_logits = request.logprobs.has_value(),
                      .reuse = request.reuse};
  for (const text::TokenId id : text.tokenizer().end_of_text())
    if (id < program.vocab) tokens.stop_ids.push_back(id);
  return tokens;
}

}  // namespace

void check(const TextRequest& request, const ModelText& text, const Program& program) {
  check(request.sampling);
  check(request.penalties);
  check_tokens(tokens_of(request, text, program), program.vocab, program.max_context,
               room_of(program));
  if (!request.sampling.is_greedy() && !program.draws())
    wrong_usage("the package can only take the likeliest token: compile the model again");
}

TextAnswer answer(const TextRequest& request, Generator& generator, const ModelText& model,
                  const Program& program, const std::function<void(const TextPiece&)>& on_piece,
                  const std::function<bool()>& stopped) {
  TokenRequest tokens = tokens_of(request, model, program);
  if (request.rules.grammar) tokens.matcher = std::make_shared<grammar::Matcher>(request.rules);
  generator.check(tokens);
  TextAnswer answer;
  answer.prompt_tokens = std::ssize(tokens.ids);
  const auto is_stopped = [&] { return stopped && stopped(); };
  // A grammar knows a token's text in the middle of another one.
  const bool continues = request.continues || request.rules.grammar;
  AnswerText text(model.tokenizer(), continues ? request.ids : std::vector<std::int64_t>{},
                  request.stop, request.shown);
  const auto begin = Clock::now();
  auto first = begin, last = begin;
  answer.cached = generator.prompt(tokens, 0, is_stopped);
  if (!is_stopped())
    generator.generate(tokens, [&](std::int64_t token) {
      last = Clock::now();
      if (answer.ids.empty()) first = last;
      answer.ids.push_back(token);
      TextPiece piece{.text = {}, .token = token};
      if (request.logprobs)
        piece.logprobs = logprobs_of(generator.token_logits(), token, *request.logprobs);
      const bool ends = std::ranges::find(tokens.stop_ids, token) != tokens.stop_ids.end();
      if (!ends) piece.text = text.push(token);
      if (ends || text.stopped()) answer.finish = "stop";
      on_piece(piece);
      return answer.finish != "stop" && !is_stopped();
    });
  if (answer.finish != "stop" && tokens.matcher && tokens.matcher->ended()) answer.finish = "stop";
  if (answer.finish != "stop" && is_stopped()) answer.finish = "interrupted";
  if (std::string rest = text.finish(); !rest.empty()) on_piece({.text = std::move(rest)});
  if (text.stopped()) answer.finish = "stop";
  answer.stopped_by = text.stopped_by();
  answer.text = text.text();
  const std::int64_t room = room_for(request, program);
  answer.full =
      tokens.max_new_tokens == room && !(request.max_new_tokens && *request.max_new_tokens == room);
  answer.first_token_seconds = seconds_between(begin, first);
  if (const auto more = static_cast<double>(answer.ids.size()) - 1; more >= kTimedTokens)
    answer.token_seconds = seconds_between(first, last) / more;
  return answer;
}

Answerer::Answerer(const ModelText& text, Engine& engine, TimingTurn& turns, MakeCache make_cache)
    : text_(text), turns_(turns), make_cache_(std::move(make_cache)) {
  set_engine(engine);
  text.check_vocabulary(program().vocab);
}

void Answerer::set_engine(Engine& engine) {
  engine_ = &engine;
  cache_ = make_cache_ ? make_cache_(engine) : nullptr;
  generator_ = package_generator(engine, cache_.get());
}

void Answerer::replace_engine(const std::function<Engine&()>& open) {
  generator_.reset();
  cache_.reset();
  set_engine(open());
}

TextAnswer Answerer::answer(const TextRequest& request,
                            const std::function<void(const TextPiece&)>& on_piece,
                            const std::function<bool()>& stopped) {
  if (!generator_) job_failed("the model could not be loaded again");
  const TimingTurn::Turn turn = turns_.answer();
  TextAnswer answer = ac::answer(request, *generator_, text_, program(), on_piece, stopped);
  if (answer.token_seconds > 0)
    answer.memory_share =
        memory_share(answer.prompt_tokens + (std::ssize(answer.ids) - 1) / 2, answer.token_seconds);
  return answer;
}

void Answerer::keep(const std::function<bool()>& stopped) {
  if (!generator_) return;
  const TimingTurn::Turn turn = turns_.answer();
  generator_->keep(stopped);
}

std::optional<PrefixCounts> Answerer::cache_counts() const {
  return cache_ ? std::optional(cache_->counts()) : std::nullopt;
}

std::optional<double> Answerer::memory_share(std::int64_t context, double seconds) const {
  const DeviceInfo& device = engine_->device().info();
  if (device.sm == 0 || device.bandwidth <= 0) return std::nullopt;
  const Traffic traffic = traffic_of(program(), program().phase_of(1, context), 1, context);
  return static_cast<double>(traffic.weights + traffic.cache) / seconds / device.bandwidth;
}

}  // namespace ac
