#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/run_request.h"
#include "cli/text_model.h"
#include "text/unicode.h"

namespace ac {
namespace {

constexpr std::int64_t kNewTokens = 256;

struct Generate {
  TextArguments text;
  std::string prompt, prompt_file, system;
  bool chat = false, special = false;
  const CLI::App* command = nullptr;

  void run() const {
    if (!chat)
      for (const char* option : {"--system", "--chat-template", "--template-arg"})
        if (command->count(option) > 0) wrong_usage("{} is of use with --chat only", option);
    const std::string asked = read_prompt();
    TextModel model(text, chat);
    const std::vector<std::int64_t> ids =
        chat ? model.text().chat_prompt({{"messages", messages(asked)}}).ids
             : model.text().ids_of_text(asked, special);
    const Choosing& choosing = model.choosing();
    TextRequest request = model.request(ids);
    request.continues = !chat;
    if (!request.max_new_tokens) request.max_new_tokens = kNewTokens;
    const TextAnswer answer = model.answerer().answer(request, [&](const TextPiece& piece) {
      if (!text.json && !piece.text.empty()) print_text(piece.text);
    });
    if (text.json)
      fmt::print("{}\n", as_json(model, ids, answer).dump());
    else
      print_text("\n");
    model.say(summary_of(answer, choosing));
    if (text.tune_after)
      model.select_beside();
    else if (model.is_quick())
      model.say(
          "quick kernels: --tune-after has faster ones selected after the answer, --full "
          "before it");
  }

  Json messages(const std::string& asked) const {
    Json list = Json::array();
    if (!system.empty())
      list.push_back({{"role", "system"}, {"content", text::repaired_utf8(system)}});
    list.push_back({{"role", "user"}, {"content", text::repaired_utf8(asked)}});
    return list;
  }

  std::string read_prompt() const {
    const bool from_stdin = prompt_file.empty() && command->count("--prompt") == 0;
    if (from_stdin && isatty(STDIN_FILENO) == 1)
      wrong_usage("there is no prompt: give -p TEXT, --prompt-file FILE, or text on stdin");
    if (!from_stdin && prompt_file.empty() && prompt != "-") return prompt;
    std::string whole = read_whole(prompt_file.empty() ? "-" : prompt_file);
    // An editor or echo has put it there.
    if (whole.ends_with('\n')) whole.pop_back();
    if (whole.ends_with('\r')) whole.pop_back();
    return whole;
  }

  static Json as_json(const TextModel& model, const std::vector<std::int64_t>& ids,
                      const TextAnswer& answer) {
    Json timings = timings_of(answer);
    timings["load_seconds"] = model.load_seconds();
    Json result{{"text", answer.text},
                {"ids", answer.ids},
                {"prompt_ids", ids},
                {"prompt_tokens", answer.prompt_tokens},
                {"finish_reason", answer.finish},
                {"sampling", to_json(model.choosing().sampling)},
                {"penalties", to_json(model.choosing().penalties)},
                {"timings", timings}};
    return result;
  }
};

}  // namespace

void add_generate_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "Go on with a text, or answer a question, as text");
  const auto generate = std::make_shared<Generate>();
  generate->command = command;
  CLI::Option* const prompt = command->add_option(
      "-p,--prompt", generate->prompt, "The text to go on with; - is stdin, as it is without -p");
  command
      ->add_option("--prompt-file", generate->prompt_file,
                   "The same from a file. A newline at the end of a file or of stdin is left out")
      ->type_name("FILE")
      ->excludes(prompt);
  command->add_flag("--chat", generate->chat,
                    "Put the prompt into the model's chat template, as a user's message");
  command->add_option("--system", generate->system, "The system's message, before the user's");
  command->add_flag(
      "--special", generate->special,
      "Special tokens that are written in the prompt (<|im_start|>) are those tokens; "
      "else they are text like any other");
  generate->text.add_to(*command, std::to_string(kNewTokens));
  command->add_flag("--json", generate->text.json,
                    "Print one JSON object at the end: text, ids, prompt_ids, prompt_tokens, "
                    "finish_reason (stop or length), sampling, penalties and timings");
  command->footer(
      "Examples:\n"
      "  agentcompile generate MODEL -p 'Once upon a time'\n"
      "  agentcompile generate MODEL --chat -p 'Why is the sky blue?' --temp 0.7\n"
      "  git diff | agentcompile generate PKG --chat --system 'Write a commit message' -q\n"
      "Tokens are chosen as the model's generation_config.json says; without one, the likeliest "
      "is\n"
      "taken. Options override that file. Text goes to stdout as it comes, statistics to stderr.");
  command->callback([generate] { generate->run(); });
}

}  // namespace ac
