// A package with its tokenizer and chat template: text in, text out. What `generate` and `chat`
// share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/background.h"
#include "cli/engine.h"
#include "cli/generator.h"
#include "cli/model_argument.h"
#include "cli/sampling_flags.h"
#include "lab/timing_turn.h"
#include "text/chat_template.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"

namespace ac {

struct TextArguments {
  ModelArgument model;
  EngineArguments engine;
  SamplingFlags flags;
  std::string tokenizer, chat_template;
  std::vector<std::string> variables;  // NAME=VALUE, of the template
  bool json = false;
  bool full = false, tune_after = false;  // see add_to()

  void add_to(CLI::App& command, const std::string& default_tokens);
};

struct TextAnswer {
  std::string text;
  std::vector<std::int64_t> ids;  // with the one that ended it
  // "stop": a token or text that ends the answer; "length": there is no room for more, or no more
  // was wanted; "interrupted".
  std::string finish = "length";
  bool full = false;  // the context, where it has no room for more
  std::int64_t prompt_tokens = 0, cached = 0;
  // The latter of each but the first; 0 if there are too few to tell.
  double first_token_seconds = 0, token_seconds = 0;
  std::optional<double> memory_share;  // of the speed of the device's memory
};
Json timings_of(const TextAnswer& answer);
// For people, on one line.
std::string summary_of(const TextAnswer& answer, const Choosing& choosing);

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

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const Choosing& choosing() const { return choosing_; }
  double load_seconds() const { return opened_.engine->loaded().seconds; }
  void say(const std::string& what) const;  // on stderr, unless it shall be quiet
  std::int64_t most_tokens() const { return opened_.engine->program().max_context; }

  struct ChatPrompt {
    std::vector<std::int64_t> ids;
    bool thinking = false;  // the answer begins with reasoning: the prompt has opened it
  };
  // Of a conversation, up to where the answer begins; of a model that chats. A special token that
  // is written in a message is text: nobody ends their turn by what they say.
  ChatPrompt chat_prompt(const Json& messages) const;
  // Of plain text, with what the tokenizer puts around it.
  std::vector<std::int64_t> ids_of_text(std::string_view text, bool parse_special) const;

  // What follows the ids. `continues`: the answer goes on with the prompt's text, in whose middle a
  // space is a space; else it is a text of its own. `on_text` hears whole characters as they come;
  // generation ends soon after `stopped` says so. At most so many tokens; nothing: what there is
  // room for.
  TextAnswer answer(const std::vector<std::int64_t>& ids, bool continues,
                    std::optional<std::int64_t> max_new_tokens,
                    const std::function<void(const std::string&)>& on_text,
                    const std::function<bool()>& stopped = {});

 private:
  void load_text(const std::filesystem::path& package, bool chats);
  bool has_special(const std::string& text) const;
  std::string render(const Json& messages) const;
  std::optional<double> memory_share(std::int64_t context, double seconds) const;

  void open();

  const TextArguments& arguments_;
  ModelArgument::Found found_;
  std::filesystem::path package_;
  std::optional<TimingTurn> turns_;
  std::optional<BackgroundProcess> selection_;
  EngineArguments::Opened opened_;
  std::filesystem::path text_;  // the folder
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  Json variables_ = Json::object();
  Choosing choosing_;
  std::unique_ptr<Generator> generator_;
};

// To stdout, at once. Control characters never reach a terminal.
void print_text(const std::string& text);

}  // namespace ac
