// A MODEL that takes and gives text, by the options that `generate`, `chat` and `serve` share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer/answerer.h"
#include "ask/choosing.h"
#include "ask/model_text.h"
#include "base/background.h"
#include "base/timing_turn.h"
#include "cli/cache_arguments.h"
#include "cli/engine.h"
#include "cli/model_argument.h"
#include "cli/sampling_flags.h"

namespace ac {

struct TextArguments {
  ModelArgument model;
  EngineArguments engine;
  CacheArguments cache;  // of commands that answer more than one prompt
  SamplingFlags flags;
  std::string tokenizer, chat_template;
  std::vector<std::string> variables;  // NAME=VALUE, of the template
  bool json = false;
  bool full = false, tune_after = false;  // see add_to()

  void add_to(CLI::App& command, const std::string& default_tokens);
  Json template_variables() const;
};

// For people, on one line.
std::string summary_of(const TextAnswer& answer, const Choosing& choosing);
Json timings_of(const TextAnswer& answer);

class TextModel {
 public:
  // `chats`: the model must have a chat template; an error (bad_input) says if it has none.
  TextModel(const TextArguments& arguments, bool chats);

  // Where quick kernels answer: selects faster ones by measurement, in a process of its own that
  // lives as long as this or, with --tune-after, goes on. Says so on stderr.
  void select_beside();
  bool is_quick() const { return opened_.engine->program().quick; }
  // Between two answers: loads what that has made, if it has come to its end. What the next prompt
  // shares with the last one is then run again.
  void take_up();

  const ModelText& text() const { return *text_; }
  Answerer& answerer() { return *answerer_; }
  const Choosing& choosing() const { return choosing_; }
  // Of the package: what it computes is what one of the same fingerprint computes.
  std::string fingerprint() const;
  void say(const std::string& what) const;  // on stderr, unless it shall be quiet
  double load_seconds() const { return opened_.engine->loaded().seconds; }
  std::int64_t most_tokens() const { return opened_.engine->program().max_context; }
  std::int64_t vocabulary() const { return opened_.engine->program().vocab; }
  // With these ids, and all else as the options and the model say.
  TextRequest request(std::vector<std::int64_t> ids) const;

 private:
  Engine& load();
  std::unique_ptr<PrefixCache> make_cache(Engine& engine) const;

  const TextArguments& arguments_;
  ModelArgument::Found found_;
  std::filesystem::path package_;
  std::vector<std::string> stop_;
  std::unique_ptr<ModelText> text_;
  Choosing choosing_;
  EngineArguments::Opened opened_;
  std::optional<TimingTurn> turns_;
  std::unique_ptr<Answerer> answerer_;
  std::optional<BackgroundProcess> selection_;
};

// To stdout, at once. Control characters never reach a terminal.
void print_text(const std::string& text);

}  // namespace ac
