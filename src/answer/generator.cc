#include "answer/generator.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "program/draw.h"

namespace ac {
namespace {

class PackageGenerator : public Generator {
 public:
  PackageGenerator(Engine& engine, PrefixCache* cache) : engine_(engine), cache_(cache) {}

  std::vector<double> logits() override { return engine_.logits(); }

  std::int64_t position() const override { return engine_.position(); }

 protected:
  std::int64_t vocabulary() const override { return engine_.program().vocab; }
  std::int64_t most_tokens() const override { return engine_.program().max_context; }
  std::string room() const override { return room_of(engine_.program()); }
  bool go_back(std::int64_t tokens) override {
    if (!engine_.can_truncate(tokens)) return false;
    engine_.truncate(tokens);
    return true;
  }
  void choose_by(const Sampling& sampling) override { engine_.sample(sampling); }
  std::int64_t most_at_once() const override {
    return cache_ ? cache_->step() : engine_.program().longest_step();
  }
  std::int64_t known(const std::vector<std::int64_t>& ids) const override {
    return cache_ ? cache_->known(ids) : 0;
  }
  std::int64_t recall(const std::vector<std::int64_t>& ids, std::int64_t cached) override {
    return cache_ ? cache_->recall(engine_, ids, cached) : cached;
  }
  std::int64_t keep_piece(Tokens pieces, std::int64_t kept) override {
    return cache_ ? cache_->keep(engine_, pieces, kept) : std::ssize(pieces);
  }
  bool forgets() const override { return ac::forgets(engine_.program()); }
  void run(const std::vector<std::int64_t>& ids) override { engine_.prefill(ids); }
  void step(std::int64_t token) override { engine_.decode(token); }
  std::int64_t choose(std::span<const std::uint32_t> allowed, const Sampling& sampling) override {
    return engine_.choose(allowed, sampling);
  }
  void follow(std::int64_t count, const std::vector<std::int64_t>& stops,
              const std::function<bool(std::int64_t)>& on_token) override {
    engine_.generate(count, on_token, stops);
  }

 private:
  Engine& engine_;
  PrefixCache* const cache_;
};

}  // namespace

void check_tokens(const TokenRequest& request, std::int64_t vocabulary, std::int64_t most_tokens,
                  const std::string& room) {
  const auto check_ids = [&](const std::vector<std::int64_t>& ids, const char* what) {
    for (const std::int64_t id : ids)
      if (id < 0 || id >= vocabulary)
        bad_input("{}the {} {} is outside the vocabulary of {}", request.where, what, id,
                  vocabulary);
  };
  check_ids(request.ids, "token id");
  check_ids(request.stop_ids, "stop id");
  for (const auto& [token, bias] : request.bias) check_ids({token}, "biased token id");
  // The last token is not run.
  const std::int64_t run =
      std::ssize(request.ids) + std::max<std::int64_t>(request.max_new_tokens - 1, 0);
  if (run > most_tokens)
    bad_input("{}{}, and {} ids with {} new tokens need {}", request.where, room,
              request.ids.size(), request.max_new_tokens, run);
}

void Generator::check(const TokenRequest& request) const {
  check_tokens(request, vocabulary(), most_tokens(), room());
}

std::int64_t Generator::alike(const std::vector<std::int64_t>& ids) const {
  const auto cached = seen_.begin() + static_cast<std::ptrdiff_t>(
                                          std::min<std::int64_t>(std::ssize(seen_), position()));
  // The last one is run in any case: it gives the logits.
  return std::mismatch(ids.begin(), ids.end() - 1, seen_.begin(), cached).first - ids.begin();
}

void Generator::keep(const std::function<bool()>& stopped) {
  if (piece_ != most_at_once()) return;
  while (kept_ < whole_ && !(stopped && stopped()))
    kept_ = keep_piece(Tokens(seen_).first(static_cast<std::size_t>(whole_)), kept_);
}

std::int64_t Generator::prompt(const TokenRequest& request, std::int64_t chunk,
                               const std::function<bool()>& stopped) {
  const std::vector<std::int64_t>& ids = request.ids;
  AC_ASSERT(!ids.empty());
  choose_by(request.by_steps() ? request.sampling : Sampling{});
  const std::int64_t piece = chunk > 0 ? chunk : most_at_once();
  const std::int64_t here = alike(ids);
  if (here < whole_ || piece != piece_ || forgets()) keep();
  if (piece != piece_) piece_ = piece, whole_ = 0;
  const std::int64_t exact = std::min(here, whole_) / piece * piece;
  const std::int64_t known = piece == most_at_once() ? this->known(ids) : 0;
  std::int64_t cached = request.reuse == Reuse::alike && known <= here ? here : exact;
  if (!go_back(cached)) {
    cached = 0;
    go_back(0);
  }
  whole_ = std::min(whole_, cached) / piece * piece;
  kept_ = 0;
  seen_ = ids;
  if (known > cached) whole_ = cached = recall(ids, cached);
  for (auto at = ids.begin() + static_cast<std::ptrdiff_t>(cached);
       at != ids.end() && !(stopped && stopped());) {
    const auto end = ids.end() - at > piece ? at + static_cast<std::ptrdiff_t>(piece) : ids.end();
    run({at, end});
    if (whole_ == at - ids.begin() && end - at == piece) whole_ += piece;
    at = end;
    if (forgets()) keep();
  }
  return cached;
}

void Generator::generate(const TokenRequest& request,
                         const std::function<bool(std::int64_t)>& on_token) {
  const auto take = [&](std::int64_t token) {
    seen_.push_back(token);
    return on_token(token);
  };
  const std::vector<std::int64_t>& stops = request.stop_ids;
  if (request.by_steps()) return follow(request.max_new_tokens, stops, take);
  grammar::Matcher* const matcher = request.matcher.get();
  std::vector<std::int64_t> ahead;  // of the answer, and not run yet
  std::int64_t left = request.max_new_tokens;
  const auto goes_on = [&](std::int64_t token) {
    ahead.push_back(token);
    return take(token) && std::ranges::find(stops, token) == stops.end() && --left > 0;
  };
  while (left > 0) {
    // Each has to have its logits where these are wanted.
    if (matcher && !request.wants_logits && !std::ranges::all_of(matcher->forced(left), goes_on))
      return;
    if (matcher && matcher->ended()) return;
    run_ahead(ahead);
    ahead.clear();
    const std::int64_t token = request.on_host()
                                   ? choose_on_host(request)
                                   : choose(matcher->allowed(vocabulary()), request.sampling);
    if (matcher) matcher->take(token);
    if (!goes_on(token)) return;
  }
}

std::int64_t Generator::choose_on_host(const TokenRequest& request) {
  std::vector<double> changed = logits();
  if (request.wants_logits) token_logits_ = changed;
  penalise(changed, request.penalties, seen_, request.ids.size());
  for (const auto& [token, bias] : request.bias)
    changed.at(static_cast<std::size_t>(token)) += bias;
  if (request.matcher) request.matcher->restrict(changed);
  return choose_token(changed, request.sampling, position());
}

std::int64_t Generator::choose(std::span<const std::uint32_t> allowed, const Sampling& sampling) {
  std::vector<double> left = logits();
  for (std::size_t i = 0; i < left.size(); ++i)
    if ((allowed[i / 32] >> i % 32 & 1) == 0) left[i] = -std::numeric_limits<double>::infinity();
  return choose_token(left, sampling, position());
}

// A few tokens are run one by one: a piece costs more than a token.
void Generator::run_ahead(const std::vector<std::int64_t>& ids) {
  constexpr std::ptrdiff_t kShortestPiece = 4;
  for (auto at = ids.begin(); at != ids.end();) {
    const auto count = std::min<std::ptrdiff_t>(ids.end() - at, most_at_once());
    if (count < kShortestPiece)
      step(*at++);
    else
      run({at, at + count}), at += count;
  }
}

std::int64_t choose_token(const std::vector<double>& logits, const Sampling& sampling,
                          std::int64_t position) {
  if (!sampling.is_greedy()) return draw_token(logits, draw_settings(sampling), position);
  return std::ranges::max_element(logits) - logits.begin();
}

bool forgets(const Program& program) {
  return std::ranges::any_of(
      program.states, [&](const StateSpec& state) { return state.slots < program.max_context; });
}

std::unique_ptr<Generator> package_generator(Engine& engine, PrefixCache* cache) {
  return std::make_unique<PackageGenerator>(engine, cache);
}

}  // namespace ac
