#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/run_request.h"
#include "text/chat_template.h"

namespace ac {
namespace {

struct ApplyTemplate {
  std::string source, input;
  std::optional<std::string> name;
  bool json = false;

  void run() const {
    const ChatTemplates templates = ChatTemplates::load(source);
    const Json values = parse_json(read_whole(input), input == "-" ? "stdin" : input);
    const bool has_tools =
        values.is_object() && values.contains("tools") && !values["tools"].is_null();
    const std::string prompt = templates.choose(name, has_tools).render(values);
    if (json)
      fmt::print("{}\n", Json{{"prompt", prompt}}.dump());
    else
      std::fwrite(prompt.data(), 1, prompt.size(), stdout);
  }
};

}  // namespace

void add_apply_template_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "apply-template", "Print the prompt that a model's chat template makes of a conversation");
  const auto apply = std::make_shared<ApplyTemplate>();
  command
      ->add_option("FILE_OR_DIR", apply->source,
                   "A template (.jinja), a tokenizer_config.json, a model's folder with either, or "
                   "FILE.gguf")
      ->required();
  command
      ->add_option("--input", apply->input,
                   "A JSON file, or - for stdin: an object with messages, and if needed tools, "
                   "documents, add_generation_prompt and any other variable of the template")
      ->type_name("FILE")
      ->required();
  command->add_option("--name", apply->name,
                      "Which of several templates (default: tool_use where the input has tools, "
                      "else default)");
  command->add_flag("--json", apply->json, "Print JSON: {\"prompt\": ...}");
  command->footer(
      "Example:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], "
      "\"add_generation_prompt\": true}' > chat.json\n"
      "  agentcompile apply-template Qwen3-0.6B --input chat.json\n"
      "The prompt is printed to the byte, without a newline at its end. A template that refuses "
      "the "
      "conversation\nends the command with exit code 1 and the template's own message.");
  command->callback([apply] { apply->run(); });
}

}  // namespace ac
