#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "text/tokenizer.h"

namespace ac {
namespace {

constexpr std::size_t kMostInput = 1u << 30;

// All of stdin.
std::string read_input() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    if (text.size() + count > kMostInput)
      bad_input("stdin: more than the limit of {} bytes", kMostInput);
    text.append(buffer, count);
  }
  if (std::ferror(stdin)) job_failed("stdin cannot be read");
  return text;
}

// Calls one(line as JSON, its name) for each line of stdin.
template <class One>
void each_line(One&& one) {
  std::string line;
  for (std::size_t number = 1; std::getline(std::cin, line); ++number) {
    const std::string name = fmt::format("stdin, line {}", number);
    one(parse_json(line, name), name);
  }
  if (std::cin.bad()) job_failed("stdin cannot be read");
}

struct Tokenize {
  std::string folder;
  bool special = false, add_special = false, lines = false, json = false;

  void run() const {
    const text::Tokenizer tokenizer = text::Tokenizer::load(folder);
    if (!lines) return print_ids(tokenizer, read_input());
    each_line([&](const Json& line, const std::string& name) {
      const bool object = line.is_object() && line.contains("text");
      const Json& text = object ? line["text"] : line;
      if (!text.is_string())
        bad_input("{}: expected a JSON string, or an object with one that is called text", name);
      print_ids(tokenizer, text.get_ref<const std::string&>());
    });
  }

  void print_ids(const text::Tokenizer& tokenizer, std::string_view text) const {
    const text::EncodeOptions options{.add_special = add_special, .parse_special = special};
    fmt::print("{{\"ids\":[{}]}}\n", fmt::join(tokenizer.encode(text, options), ","));
  }
};

struct Detokenize {
  std::string folder;
  bool special = false, lines = false, json = false;

  void run() const {
    const text::Tokenizer tokenizer = text::Tokenizer::load(folder);
    if (!lines) return print_text(tokenizer, parse_json(read_input(), "stdin"), "stdin");
    each_line(
        [&](const Json& line, const std::string& name) { print_text(tokenizer, line, name); });
  }

  void print_text(const text::Tokenizer& tokenizer, const Json& input,
                  const std::string& name) const {
    const bool object = input.is_object() && input.contains("ids");
    const Json& list = object ? input["ids"] : input;
    if (!list.is_array()) bad_input("{}: expected {{\"ids\": [...]}}", name);
    std::vector<text::TokenId> ids;
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= text::kMostTokens)
        bad_input("{}: {} is no token's id", name, id.dump().substr(0, 40));
      ids.push_back(id.get<text::TokenId>());
    }
    const std::string text = tokenizer.decode(ids, !special);
    if (json || lines)
      fmt::print("{}\n", Json{{"text", text}}.dump());
    else
      std::fwrite(text.data(), 1, text.size(), stdout);
  }
};

}  // namespace

void add_tokenize_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Text on stdin to token ids: {\"ids\":[...]}, by a folder's tokenizer.json");
  const auto tokenize = std::make_shared<Tokenize>();
  command->add_option("DIR", tokenize->folder, "A model's folder, a tokenizer.json, or FILE.gguf")
      ->required();
  command->add_flag("--special", tokenize->special,
                    "Special tokens that are written in the text (<|im_end|>) are those tokens; "
                    "else they are text like any other");
  command->add_flag("--add-special", tokenize->add_special,
                    "Put the special tokens around the text that the tokenizer prescribes");
  command->add_flag("--lines", tokenize->lines,
                    "Each line of stdin is a text of its own, as a JSON string or {\"text\":...}, "
                    "and gets a line of ids");
  command->add_flag("--json", tokenize->json, "Print JSON, which is all that it prints");
  command->footer(
      "Example:\n  printf 'Hello world' | agentcompile tokenize MODEL\n"
      "Bytes that are not UTF-8 are read as U+FFFD.");
  command->callback([tokenize] { tokenize->run(); });
}

void add_detokenize_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "detokenize", "Token ids on stdin, {\"ids\":[...]}, to text, by a folder's tokenizer.json");
  const auto detokenize = std::make_shared<Detokenize>();
  command->add_option("DIR", detokenize->folder, "A model's folder, a tokenizer.json, or FILE.gguf")
      ->required();
  command->add_flag("--special", detokenize->special, "Print special tokens, too");
  command->add_flag("--lines", detokenize->lines,
                    "Each line of stdin is a list of ids or {\"ids\":[...]}, and gets a line "
                    "{\"text\":...}");
  command->add_flag("--json", detokenize->json, "Print {\"text\":...}");
  command->footer("Example:\n  echo '{\"ids\":[15496,995]}' | agentcompile detokenize MODEL");
  command->callback([detokenize] { detokenize->run(); });
}

}  // namespace ac
