#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/print_stderr.h"
#include "cli/commands.h"
#include "cli/dialogue.h"
#include "cli/line_editor.h"
#include "cli/text_model.h"

namespace ac {
namespace {

constexpr const char* kHelp =
    "/reset        forget what was said, but for the system's text\n"
    "/system TEXT  what the system says from now on; without a text, shows it\n"
    "/stats        how fast the last answer came, and how full the context is\n"
    "/save FILE    write the conversation to a file\n"
    "/load FILE    go on with a conversation that was saved\n"
    "/exit         end; so does Ctrl-D\n"
    "A line that ends with \\ goes on in the next one, as does all between two lines with \"\"\".\n"
    "Ctrl-C stops an answer.\n";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";
constexpr std::string_view kQuotes = "\"\"\"";

// Shows an answer as it comes: reasoning is dimmed, or left out.
class AnswerView {
 public:
  AnswerView(bool hides, bool dims) : hides_(hides), dims_(dims) {}
  ~AnswerView() {
    if (dims_ && thinking_) std::fputs(kPlain, stdout);
  }
  AnswerView(const AnswerView&) = delete;
  AnswerView& operator=(const AnswerView&) = delete;

  void show(const Dialogue::Shown& part) {
    if (part.thinking && hides_) {
      after_hidden_ = true;
      return;
    }
    std::string text = part.text;
    if (after_hidden_) {  // the lines between the reasoning and the answer
      text.erase(0, text.find_first_not_of('\n'));
      if (text.empty()) return;
      after_hidden_ = false;
    }
    if (dims_ && part.thinking != thinking_) std::fputs(part.thinking ? kDim : kPlain, stdout);
    thinking_ = part.thinking;
    print_text(text);
  }

 private:
  const bool hides_, dims_;
  bool thinking_ = false, after_hidden_ = false;
};

struct Chat {
  TextArguments text;
  std::string system;
  bool hide_thinking = false;

  void run() const {
    TextModel model(text, true);
    model.select_beside();
    Dialogue dialogue(model, system);
    LineEditor lines;
    std::optional<HeardInterrupts> interrupts;
    if (lines.is_terminal()) {
      interrupts.emplace();
      if (!text.engine.quiet)
        print_stderr("{} is ready. Type a message; /help lists what else there is.\n",
                     text.model.name());
    }
    Talk{*this, model, dialogue, lines, interrupts, std::nullopt}.run();
  }

  struct Talk {
    const Chat& chat;
    TextModel& model;
    Dialogue& dialogue;
    LineEditor& lines;
    std::optional<HeardInterrupts>& interrupts;
    std::optional<TextAnswer> last;

    void run() {
      for (bool asked_to_end = false;;) {
        const auto line = lines.read("> ");
        if (!line) break;
        if (line->interrupted) {
          if (line->text.empty() && asked_to_end) break;
          asked_to_end = line->text.empty();
          if (asked_to_end) print_stderr("(Ctrl-C again ends the chat, as does /exit)\n");
          continue;
        }
        asked_to_end = false;
        const std::optional<std::string> message = whole(line->text);
        if (!message || message->find_first_not_of(" \t\n") == std::string::npos) continue;
        lines.remember(*message);
        if (*message == "/exit" || *message == "/quit") break;
        try {
          if (message->starts_with('/'))
            command(*message);
          else
            answer(*message);
        } catch (const Error& error) {
          if (!lines.is_terminal() || error.fault() == Fault::device_lost) throw;
          print_stderr("error: {}\n", error.what());
        }
      }
    }

    // With the lines that belong to it; nothing if that was interrupted.
    std::optional<std::string> whole(std::string text) {
      const auto more = [&]() -> std::optional<LineEditor::Line> { return lines.read("... "); };
      if (text.starts_with(kQuotes)) {
        text.erase(0, kQuotes.size());
        while (!text.ends_with(kQuotes)) {
          const auto line = more();
          if (!line) return text;
          if (line->interrupted) return std::nullopt;
          text += "\n" + line->text;
        }
        text.resize(text.size() - kQuotes.size());
        if (text.starts_with('\n')) text.erase(0, 1);
        if (text.ends_with('\n')) text.pop_back();
        return text;
      }
      while (text.ends_with('\\')) {
        text.pop_back();
        const auto line = more();
        if (!line) return text;
        if (line->interrupted) return std::nullopt;
        text += "\n" + line->text;
      }
      return text;
    }

    void command(const std::string& line) {
      const std::size_t space = line.find(' ');
      const std::string name = line.substr(0, space);
      const std::size_t begin = line.find_first_not_of(' ', space);
      const std::string rest =
          space == std::string::npos || begin == std::string::npos ? "" : line.substr(begin);
      const auto file = [&] {
        if (rest.empty()) wrong_usage("{} needs a file's name", name);
        return rest;
      };
      if (name == "/help") {
        print_stderr("{}", kHelp);
      } else if (name == "/reset") {
        dialogue.reset();
      } else if (name == "/system") {
        if (rest.empty())
          print_stderr("{}\n", dialogue.system());
        else
          dialogue.set_system(rest);
      } else if (name == "/stats") {
        stats();
      } else if (name == "/save") {
        write_file_atomically(file(), Json{{"messages", dialogue.messages()}}.dump(1) + "\n");
      } else if (name == "/load") {
        dialogue.load(read_json(file()), rest);
      } else {
        wrong_usage("{} is no command: /help lists them", name);
      }
    }

    void stats() const {
      if (!last) {
        print_stderr("there was no answer yet\n");
        return;
      }
      const std::int64_t used = last->prompt_tokens + std::ssize(last->ids);
      print_stderr("{}; {} of {} tokens of the context are used\n",
                   summary_of(*last, model.choosing()), used, model.most_tokens());
    }

    void answer(const std::string& message) {
      if (interrupts) interrupts->clear();
      model.take_up();
      reply(message);
      model.answerer().keep();
    }

    void reply(const std::string& message) {
      const bool json = chat.text.json;
      const bool terminal = isatty(STDOUT_FILENO) == 1;
      std::string shown;  // with --json
      {
        AnswerView view(chat.hide_thinking, terminal && !read_environment().no_color);
        last = dialogue.ask(
            message,
            [&](const Dialogue::Shown& part) {
              if (!json) return view.show(part);
              if (!part.thinking) shown += part.text;
            },
            [&] { return interrupts && interrupts->any(); });
      }
      if (json) {
        Json result{{"text", chat.hide_thinking ? shown : last->text},
                    {"ids", last->ids},
                    {"prompt_tokens", last->prompt_tokens},
                    {"cached_tokens", last->cached},
                    {"finish_reason", last->finish},
                    {"timings", timings_of(*last)}};
        fmt::print("{}\n", result.dump());
        std::fflush(stdout);
        return;
      }
      print_text("\n");
      if (last->finish == "length")
        print_stderr("[{}]\n",
                     last->full ? "the context is full: /reset begins anew; compile with a larger "
                                  "--max-context for more"
                                : "as many tokens as --max-new-tokens allows");
    }
  };
};

}  // namespace

void add_chat_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model");
  const auto chat = std::make_shared<Chat>();
  chat->text.add_to(*command, "as many as there is room for");
  chat->text.cache.add_to(*command);
  command->add_option("--system", chat->system, "What the system says before all messages");
  command->add_flag(
      "--hide-thinking", chat->hide_thinking,
      "Leave out the model's reasoning, which it writes between <think> and </think>");
  command->add_flag(
      "--json", chat->text.json,
      "Print a line of JSON for each answer: text, ids, prompt_tokens, cached_tokens, "
      "finish_reason (stop, length or interrupted) and timings");
  command->footer(
      "Examples:\n"
      "  agentcompile chat MODEL\n"
      "  agentcompile chat MODEL --system 'Answer in one sentence.' --temp 0.7\n"
      "  printf 'Hello\\nWhat did I say?\\n' | agentcompile chat PKG --json\n"
      "A line is a message; /help, as a message, lists the commands. Without a terminal, lines "
      "are\n"
      "read from stdin, and the first error ends the chat.");
  command->callback([chat] { chat->run(); });
}

}  // namespace ac
