// What `run`, `generate` and `chat` generate with: the reference executor or a package. Requests
// may follow one another; what they begin with alike is run once.
//
// The device chooses tokens. Where a request has penalties, the host does, from the logits of each
// step: that takes longer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "capture/model.h"
#include "cli/engine.h"
#include "cli/request.h"

namespace ac {

class Generator {
 public:
  virtual ~Generator() = default;

  // Runs the ids of a request, in pieces of `chunk` tokens (0: what suits). Returns how many of
  // them were cached from the request before. Once `stopped` says so, no further piece is run, and
  // there is nothing to generate from.
  std::int64_t prompt(const TokenRequest& request, std::int64_t chunk,
                      const std::function<bool()>& stopped = {});
  // Then what follows them, until there are as many as it wants or `on_token` returns false.
  void generate(const TokenRequest& request, const std::function<bool(std::int64_t)>& on_token);
  virtual std::vector<double> logits() = 0;  // after the last token that was run
  // That the ids are tokens of the model and that there is room for all that the request wants,
  // before any of it is run. An error (bad_input) begins with where the request stands.
  void check(const TokenRequest& request) const;

 protected:
  virtual std::int64_t position() const = 0;  // tokens that are cached
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t most_tokens() const = 0;   // that can be cached
  virtual std::string room() const = 0;           // the same, for people
  virtual std::int64_t most_at_once() const = 0;  // tokens of a piece
  // Forgets all but the first so many; false if the cache does not hold what they need any more.
  virtual bool go_back(std::int64_t tokens) = 0;
  virtual void choose_by(const Sampling& sampling) = 0;
  virtual void run(const std::vector<std::int64_t>& ids) = 0;  // a piece
  virtual void step(std::int64_t token) = 0;
  // Tokens as the device chooses them, up to one of `stops`.
  virtual void follow(std::int64_t count, const std::vector<std::int64_t>& stops,
                      const std::function<bool(std::int64_t)>& on_token) = 0;

 private:
  std::vector<std::int64_t> seen_;  // the tokens that were run; those beyond position() are void
};

std::unique_ptr<Generator> reference_generator(const Model& model, const Graph& normal_form,
                                               int threads);
std::unique_ptr<Generator> package_generator(Engine& engine);

}  // namespace ac
