// Answers prompts with a package: what `generate`, `chat` and `serve` share.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "answer/generator.h"
#include "ask/model_text.h"
#include "ask/text_request.h"
#include "base/timing_turn.h"
#include "runtime/engine.h"

namespace ac {

// That a program has room for the request, and can do all that it asks for: an error (bad_input or
// wrong_usage) says what is not so.
void check(const TextRequest& request, const ModelText& text, const Program& program);

// `on_piece` hears each token. The answer ends soon after `stopped` says so. What it was of the
// memory's speed is not said.
TextAnswer answer(const TextRequest& request, Generator& generator, const ModelText& text,
                  const Program& program, const std::function<void(const TextPiece&)>& on_piece,
                  const std::function<bool()>& stopped = {});

// One at a time, with an engine that it has alone.
class Answerer {
 public:
  // A cache for the engine; null: none.
  using MakeCache = std::function<std::unique_ptr<PrefixCache>(Engine&)>;
  // That their vocabularies do not fit is an error (bad_input). `turns`: who else has the device.
  Answerer(const ModelText& text, Engine& engine, TimingTurn& turns, MakeCache make_cache = {});

  // Goes on with what `open` gives, which is called when nothing refers to the engine before. If it
  // throws, nothing can be answered until another one is there.
  void replace_engine(const std::function<Engine&()>& open);

  const ModelText& text() const { return text_; }
  const Program& program() const { return engine_->program(); }
  std::int64_t cached_tokens() const { return generator_->position(); }

  TextAnswer answer(const TextRequest& request,
                    const std::function<void(const TextPiece&)>& on_piece,
                    const std::function<bool()>& stopped = {});
  // What can wait until an answer is out: the cache takes what is new of its prompt.
  void keep(const std::function<bool()>& stopped = {});
  std::optional<PrefixCounts> cache_counts() const;  // nothing: there is no cache

 private:
  void set_engine(Engine& engine);
  std::optional<double> memory_share(std::int64_t context, double seconds) const;

  const ModelText& text_;
  TimingTurn& turns_;
  const MakeCache make_cache_;
  Engine* engine_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<Generator> generator_;
};

}  // namespace ac
