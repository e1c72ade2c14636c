// What `run`, `generate`, `chat` and `serve` generate with: a package, or the reference executor.
// Requests may follow one another; what they begin with alike is run once, or brought back from
// a cache of what was run before.
//
// The device chooses tokens. Where a request has a grammar, it does under a mask, which the host
// makes for each token; where a grammar leaves no choice, nothing is chosen, and several tokens are
// run at once. Where a request changes logits or wants them, the host chooses, from the logits of
// each step: that takes longer.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ask/token_request.h"
#include "prefix/prefix_cache.h"
#include "runtime/engine.h"

namespace ac {

class Generator {
 public:
  virtual ~Generator() = default;

  // Runs the ids of a request, in pieces of `chunk` tokens (0: what suits). Returns how many of
  // them were cached from requests before. Once `stopped` says so, no further piece is run, and
  // there is nothing to generate from.
  std::int64_t prompt(const TokenRequest& request, std::int64_t chunk,
                      const std::function<bool()>& stopped = {});
  // Then what follows them, until there are as many as it wants or `on_token` returns false.
  void generate(const TokenRequest& request, const std::function<bool(std::int64_t)>& on_token);
  // Gives the cache what it has not of the prompt that was run last, piece by piece until `stopped`
  // says so. May be called whenever there is time. A prompt that does not go on from the last one
  // keeps that first.
  void keep(const std::function<bool()>& stopped = {});
  // For `on_token`, where a request wants them: the model's logits that its token was chosen from,
  // without penalties and bias.
  const std::vector<double>& token_logits() const { return token_logits_; }
  // How many tokens the prompt has in common with what was run last and is cached.
  std::int64_t alike(const std::vector<std::int64_t>& ids) const;
  virtual std::vector<double> logits() = 0;       // after the last token that was run
  virtual std::int64_t position() const = 0;      // tokens that are cached
  void check(const TokenRequest& request) const;  // by check_tokens()

 protected:
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t most_tokens() const = 0;   // that can be cached
  virtual std::string room() const = 0;           // the same, for people
  virtual std::int64_t most_at_once() const = 0;  // tokens of a piece
  // These ask a cache (prefix/prefix_cache.h), whose pieces have most_at_once() tokens; a generator
  // without one leaves them as they are.
  virtual std::int64_t known(const std::vector<std::int64_t>&) const { return 0; }
  virtual std::int64_t recall(const std::vector<std::int64_t>&, std::int64_t cached) {
    return cached;
  }
  // Keeps the piece behind the first `kept` tokens. Says how many tokens are kept afterwards.
  virtual std::int64_t keep_piece(Tokens pieces, std::int64_t /*kept*/) {
    return std::ssize(pieces);
  }
  virtual bool forgets() const { return false; }  // whether a piece is gone when others are run
  // Forgets all but the first so many; false if the cache does not hold what they need any more.
  virtual bool go_back(std::int64_t tokens) = 0;
  virtual void choose_by(const Sampling& sampling) = 0;
  virtual void run(const std::vector<std::int64_t>& ids) = 0;  // a piece
  virtual void step(std::int64_t token) = 0;
  // After the last token that was run, among those that have a bit (grammar::Matcher::allowed).
  virtual std::int64_t choose(std::span<const std::uint32_t> allowed, const Sampling& sampling);
  // Tokens as the device chooses them, up to one of `stops`.
  virtual void follow(std::int64_t count, const std::vector<std::int64_t>& stops,
                      const std::function<bool(std::int64_t)>& on_token) = 0;

 private:
  void run_ahead(const std::vector<std::int64_t>& ids);
  std::int64_t choose_on_host(const TokenRequest& request);

  std::vector<std::int64_t> seen_;  // the tokens that were run; those beyond position() are void
  // So many of the first ones were run in whole pieces of so many tokens.
  std::int64_t whole_ = 0, piece_ = 0;
  std::int64_t kept_ = 0;  // so many of those the cache has got since the prompt came
  std::vector<double> token_logits_;
};

// That the ids are tokens of a model of so many and that there is room, of which `room` tells, for
// all that the request wants, before any of it is run. An error (bad_input) begins with where the
// request stands.
void check_tokens(const TokenRequest& request, std::int64_t vocabulary, std::int64_t most_tokens,
                  const std::string& room);

// Whether states of the program are gone when tokens are run that come much later.
bool forgets(const Program& program);

// `cache`: of the same program; null: none.
std::unique_ptr<Generator> package_generator(Engine& engine, PrefixCache* cache = nullptr);

// After so many tokens, which the random numbers of a draw depend on.
std::int64_t choose_token(const std::vector<double>& logits, const Sampling& sampling,
                          std::int64_t position);

}  // namespace ac
