#include "cli/text_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "build/digest.h"
#include "cli/page.h"
#include "runtime/package_files.h"
#include "text/text_files.h"

namespace ac {
namespace {

// The package's own folder of texts, each file checked against its digest.
std::filesystem::path checked_text(const std::filesystem::path& package) {
  const PackageFiles files(package);
  const std::filesystem::path folder = package / text::kTextFolder;
  if (!files.lists(fmt::format("{}/tokenizer.json", text::kTextFolder))) no_tokenizer(package);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (!entry.is_directory())
      files.check(entry.path().lexically_relative(package).generic_string());
  return folder;
}

std::filesystem::path text_folder(const TextArguments& arguments,
                                  const std::filesystem::path& package) {
  if (arguments.tokenizer.empty()) return checked_text(package);
  const std::filesystem::path folder = arguments.tokenizer;
  if (!std::filesystem::exists(folder / "tokenizer.json")) no_tokenizer(folder);
  return folder;
}

}  // namespace

void TextArguments::add_to(CLI::App& command, const std::string& default_tokens) {
  model.add_to(command);
  engine.add_to(command);
  command
      .add_option("--tokenizer", tokenizer,
                  "A folder with the tokenizer, chat template and generation_config.json, instead "
                  "of the model's own")
      ->type_name("FOLDER")
      ->group(kRare);
  command
      .add_option("--chat-template", chat_template,
                  "A file with a chat template, instead of the model's own")
      ->type_name("FILE")
      ->group(kRare);
  command
      .add_option("--template-arg", variables,
                  "A variable of the chat template: NAME=VALUE, as enable_thinking=false")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  flags.add_to(command, default_tokens);
  command.add_flag("--quiet,-q", engine.quiet, "No progress and no statistics on stderr");
}

Json TextArguments::template_variables() const {
  Json variables_of = Json::object();
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos)
      wrong_usage("--template-arg: {} is not NAME=VALUE", variable);
    const std::string value = variable.substr(equals + 1);
    const Json parsed = Json::parse(value, nullptr, false);
    variables_of[variable.substr(0, equals)] = parsed.is_discarded() ? Json(value) : parsed;
  }
  return variables_of;
}

Json timings_of(const TextAnswer& answer) {
  Json timings{{"first_token_ms", answer.first_token_seconds * 1e3}};
  if (answer.token_seconds > 0) {
    timings["ms_per_token"] = answer.token_seconds * 1e3;
    timings["tokens_per_second"] = 1 / answer.token_seconds;
  }
  if (answer.memory_share) timings["memory_share"] = *answer.memory_share;
  return timings;
}

std::string summary_of(const TextAnswer& answer, const Choosing& choosing) {
  std::string line = fmt::format("{} tokens of prompt", answer.prompt_tokens);
  if (answer.cached > 0) line += fmt::format(", {} of them known", answer.cached);
  if (!answer.ids.empty())
    line += fmt::format("; first token after {:.0f} ms", answer.first_token_seconds * 1e3);
  line += fmt::format("; {} tokens", answer.ids.size());
  if (answer.token_seconds > 0)
    line += fmt::format(", {:.3g} ms each, {:.3g} a second", answer.token_seconds * 1e3,
                        1 / answer.token_seconds);
  if (answer.memory_share)
    line += fmt::format(", {:.0f} % of the memory's speed", 100 * *answer.memory_share);
  if (!choosing.penalties.none()) line += "; penalties are computed on the CPU, which takes longer";
  if (!choosing.sampling.is_greedy()) line += fmt::format("; seed {}", choosing.sampling.seed);
  if (answer.finish == "length")
    line += answer.full ? "; ended: the context is full (compile with a larger --max-context)"
                        : "; ended: as many as --max-new-tokens allows";
  if (answer.finish == "interrupted") line += "; interrupted";
  return line;
}

TextModel::TextModel(const TextArguments& arguments, bool chats) : stop_(arguments.flags.stop) {
  arguments.flags.check();
  Json variables = arguments.template_variables();
  // What can be wrong with texts is said before gigabytes of weights are read.
  package_ =
      choose_package(arguments.model.package({arguments.engine.device, arguments.tokenizer.empty(),
                                              arguments.engine.quiet}),
                     arguments.engine.device);
  text_ = std::make_unique<ModelText>(
      ModelText::Source{text_folder(arguments, package_), arguments.chat_template, variables});
  if (chats) text_->require_chat();
  choosing_ = arguments.flags.with(text_->generation_config(), text_->generation_config_file());
  opened_ = arguments.engine.open(package_);
  answerer_ = std::make_unique<Answerer>(*text_, *opened_.engine);
}

std::string TextModel::fingerprint() const {
  constexpr std::size_t kMost = 64u << 20;
  return "fp_" + sha256(read_file(package_ / "digests.json", kMost)).substr(0, 12);
}

TextRequest TextModel::request(std::vector<std::int64_t> ids) const {
  return {.ids = std::move(ids),
          .max_new_tokens = choosing_.max_new_tokens,
          .sampling = choosing_.sampling,
          .penalties = choosing_.penalties,
          .stop = stop_};
}

void print_text(const std::string& text) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::string shown = text;
  if (terminal)
    std::ranges::replace_if(
        shown, [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; },
        ' ');
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
}

}  // namespace ac
