// A package in memory, with its texts: what is behind a handle of the C API. Its engine has one
// sequence of tokens, which answers and single steps take turns in.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "answer/answerer.h"
#include "ask/model_text.h"
#include "base/timing_turn.h"
#include "runtime/opening.h"

namespace ac {

class LoadedModel {
 public:
  struct Options {
    EngineOpening engine;
    std::filesystem::path tokenizer, chat_template;  // instead of the package's; empty: those
    PrefixOptions cache;                             // without memory: none
  };
  LoadedModel(const std::string& package, Options options);

  // Holds the model for the calling thread; others wait. A second one of the same thread is an
  // error (wrong_usage).
  class Use {
   public:
    explicit Use(LoadedModel& model);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    LoadedModel& model_;
  };

  // May be called at any time.
  const ModelText& text() const;  // an error (bad_input) says that the package has none
  bool has_text() const { return text_ != nullptr; }
  const Program& program() const { return opened_.engine->program(); }
  std::string device() const { return opened_.device->name(); }
  void stop() { stopped_ = true; }

  // The rest needs a Use.
  // `on_piece` says whether the answer goes on.
  TextAnswer answer(const TextRequest& request,
                    const std::function<bool(const TextPiece&)>& on_piece);
  void append(const std::vector<std::int64_t>& ids);
  std::int64_t position() const { return opened_.engine->position(); }
  void truncate(std::int64_t tokens);
  std::vector<double> logits() const { return opened_.engine->logits(); }
  std::int64_t choose(const Sampling& sampling) const;
  // Of all tokens that are cached.
  std::string save();
  void restore(std::string_view state);

 private:
  Engine& begin_steps();
  std::string identity();

  const std::string package_;
  const Options options_;
  std::unique_ptr<ModelText> text_;
  EngineOpening::Opened opened_;
  std::optional<TimingTurn> turns_;
  std::unique_ptr<Answerer> answerer_;  // null: there are no texts
  bool stepping_ = false;               // the sequence is not the answerer's any more
  bool likeliest_is_chosen_ = false;    // by the last step, on the device
  std::string identity_;                // once it is asked for

  std::mutex busy_;
  std::atomic<std::thread::id> user_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace ac
