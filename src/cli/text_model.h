// A MODEL that takes and gives text, by the options that `generate`, `chat` and `serve` share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer/answerer.h"
#include "answer/sequences.h"
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
  std::int64_t slots = 1;                 // requests that are answered at once

  // Returns the option MODEL.
  CLI::Option* add_to(CLI::App& command, const std::string& default_tokens);
  Json template_variables() const;
  // Of a process that answers with the package, as these arguments say (cli/serve_worker.cc).
  std::vector<std::string> worker_command(const std::filesystem::path& package) const;
};

// What processes share that answer and measure on the device; empty: there is no cache folder.
std::filesystem::path turns_of(const Device& device);

// For people, on one line.
std::string summary_of(const TextAnswer& answer, const Choosing& choosing);
Json timings_of(const TextAnswer& answer);

// A MODEL that was found, or compiled, and its texts.
class FoundModel {
 public:
  // `chats`: the model must have a chat template; an error (bad_input) says if it has none.
  FoundModel(const TextArguments& arguments, bool chats);

  // Where quick kernels answer: selects faster ones by measurement, in a process of its own that
  // lives as long as this or, with --tune-after, goes on. Says so on stderr.
  void select_beside();
  // That has come to its end since this was asked last, and faster kernels are in the package.
  bool has_faster_kernels();
  void say_faster() const;

  const std::filesystem::path& package() const { return package_; }
  const ModelText& text() const { return *text_; }
  const Choosing& choosing() const { return choosing_; }
  // Of the package: what it computes is what one of the same fingerprint computes.
  std::string fingerprint() const;
  void say(const std::string& what) const;  // on stderr, unless it shall be quiet
  // A device that was opened to find it, if any.
  std::unique_ptr<Device> take_device() { return std::move(found_.device); }

 protected:
  // What was run of prompts, for engines of the program; `step`: tokens, 0: the longest. Null, with
  // a warning: it cannot be kept. Where the arguments want none, it is not to be called.
  std::unique_ptr<PrefixCache> make_cache(const Engine& engine, std::int64_t step) const;

  const TextArguments& arguments_;

 private:
  ModelArgument::Found found_;
  std::filesystem::path package_;
  std::unique_ptr<ModelText> text_;
  Choosing choosing_;
  std::optional<BackgroundProcess> selection_;
};

// With an engine that runs it.
class TextModel : public FoundModel {
 public:
  TextModel(const TextArguments& arguments, bool chats);

  bool is_quick() const { return opened_.engine->program().quick; }
  // Between two answers: loads faster kernels, if they are there. What the next prompt shares with
  // the last one is then run again.
  void take_up();

  Answerer& answerer() { return *answerer_; }
  double load_seconds() const { return opened_.engine->loaded().seconds; }
  std::int64_t most_tokens() const { return opened_.engine->program().max_context; }
  // With these ids, and all else as the options and the model say.
  TextRequest request(std::vector<std::int64_t> ids) const;

 private:
  Engine& load();

  std::vector<std::string> stop_;
  EngineArguments::Opened opened_;
  std::optional<TimingTurn> turns_;
  std::unique_ptr<Answerer> answerer_;
};

// With sequences for as many requests at once as the arguments say.
class SequencesModel : public FoundModel {
 public:
  explicit SequencesModel(const TextArguments& arguments);

  Sequences& sequences() { return *sequences_; }

 private:
  EngineArguments::Opened opened_;
  std::optional<TimingTurn> turns_;
  std::optional<Sequences> sequences_;
};

// To stdout, at once. Control characters never reach a terminal.
void print_text(const std::string& text);

}  // namespace ac
