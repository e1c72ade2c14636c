#include "cli/text_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "answer/package_text.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/files.h"
#include "base/print_stderr.h"
#include "base/warning.h"
#include "build/digest.h"
#include "cli/command_page.h"
#include "runtime/package_files.h"
#include "text/text_files.h"

namespace ac {
namespace {

namespace fs = std::filesystem;

fs::path text_folder(const TextArguments& arguments, const fs::path& package) {
  fs::path folder = arguments.tokenizer;
  if (folder.empty()) folder = text_of_package(package);
  if (folder.empty()) no_tokenizer(package);
  if (!text::has_tokenizer(folder)) no_tokenizer(folder);
  return folder;
}

}  // namespace

CLI::Option* TextArguments::add_to(CLI::App& command, const std::string& default_tokens) {
  CLI::Option* const option = model.add_to(command);
  engine.add_to(command);
  command
      .add_option("--tokenizer", tokenizer,
                  "A folder with the tokenizer, chat template and generation_config.json, or "
                  "FILE.gguf, instead of the model's own")
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
  command.add_flag("--full", full,
                   "If MODEL is compiled: select kernels by measurement before the first answer, "
                   "which takes minutes, once. Else quick ones answer first");
  command.add_flag("--tune-after", tune_after,
                   "If quick kernels answer: have faster ones selected by a process that goes on "
                   "when this command has ended");
  flags.add_to(command, default_tokens);
  command.add_flag("--quiet,-q", engine.quiet, "No progress and no statistics on stderr");
  return option;
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

std::vector<std::string> TextArguments::worker_command(const fs::path& package) const {
  std::vector<std::string> command = {"/proc/self/exe", "serve-worker", package.string()};
  for (const auto& more : {engine.command(), cache.command()})
    command.insert(command.end(), more.begin(), more.end());
  if (slots > 1) command.insert(command.end(), {"--slots", std::to_string(slots)});
  if (!tokenizer.empty()) command.insert(command.end(), {"--tokenizer", tokenizer});
  if (!chat_template.empty()) command.insert(command.end(), {"--chat-template", chat_template});
  return command;
}

fs::path turns_of(const Device& device) {
  const Environment environment = read_environment();
  if (environment.cache.empty()) return {};
  return turns_file(builder_options(environment).cache, device.info().sm > 0);
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

FoundModel::FoundModel(const TextArguments& arguments, bool chats) : arguments_(arguments) {
  arguments.flags.check();
  arguments.cache.check();
  const Json variables = arguments.template_variables();
  found_ = arguments.model.package({.device = arguments.engine.device,
                                    .tokenizer = arguments.tokenizer.empty(),
                                    .full = arguments.full,
                                    .quiet = arguments.engine.quiet,
                                    .slots = arguments.slots});
  package_ = choose_package(found_.package, arguments.engine.device);
  // What can be wrong with texts is said before gigabytes of weights are read.
  reading_whole(package_, [&] {
    text_ = std::make_unique<ModelText>(
        ModelText::Source{text_folder(arguments, package_), arguments.chat_template, variables});
  });
  if (chats) text_->require_chat();
  choosing_ = arguments.flags.with(text_->generation_config(), text_->generation_config_file());
}

TextModel::TextModel(const TextArguments& arguments, bool chats)
    : FoundModel(arguments, chats), stop_(arguments.flags.stop) {
  Engine& engine = load();
  turns_.emplace(turns_of(*opened_.device));
  Answerer::MakeCache make_cache;
  if (arguments.cache.is_on())
    make_cache = [this](Engine& of) { return this->make_cache(of, arguments_.cache.step); };
  answerer_ = std::make_unique<Answerer>(text(), engine, *turns_, std::move(make_cache));
}

SequencesModel::SequencesModel(const TextArguments& arguments) : FoundModel(arguments, false) {
  reading_whole(package(), [&] {
    opened_ = arguments.engine.open_for(arguments.slots, package(), take_device());
  });
  text().check_vocabulary(opened_.program->program().vocab);
  turns_.emplace(turns_of(*opened_.device));
  Sequences::MakeCache make_cache;
  if (arguments.cache.is_on())
    make_cache = [this](Engine& of, std::int64_t piece) { return this->make_cache(of, piece); };
  sequences_.emplace(opened_.program,
                     Sequences::Options{.count = arguments.slots, .piece = arguments.cache.step},
                     *turns_, make_cache);
}

std::unique_ptr<PrefixCache> FoundModel::make_cache(const Engine& engine, std::int64_t step) const {
  try {
    PrefixOptions options = arguments_.cache.options();
    options.step = step;
    std::string model;
    if (!arguments_.cache.folder.empty())
      model =
          fmt::format("{} on {}", arguments_.engine.identity_of(engine), engine.device().name());
    return std::make_unique<PrefixCache>(engine, options, model);
  } catch (const Error& error) {
    if (error.fault() != Fault::job_failed) throw;
    warn("no prompts are kept: {}", error.what());
    return nullptr;
  }
}

Engine& TextModel::load() {
  reading_whole(package(), [&] {
    if (opened_.device)
      arguments_.engine.reopen(package(), opened_);
    else
      opened_ = arguments_.engine.open(package(), false, take_device());
  });
  return *opened_.engine;
}

void FoundModel::say(const std::string& what) const {
  if (!arguments_.engine.quiet) print_stderr("[{}]\n", what);
}

void FoundModel::select_beside() {
  if (found_.to_full.empty() || selection_) return;
  const fs::path log = found_.package.string() + ".log";
  selection_.emplace(
      found_.to_full, log,
      arguments_.tune_after ? BackgroundProcess::Lives::on : BackgroundProcess::Lives::with_us);
  say(fmt::format("quick kernels answer for now; process {} selects faster ones: {}",
                  selection_->id(), log.string()));
}

bool FoundModel::has_faster_kernels() {
  if (!selection_ || !selection_->has_ended()) return false;
  selection_.reset();
  if (read_program(PackageFiles(package_)).quick) {
    warn_on_stderr(fmt::format("no faster kernels were selected, and quick ones go on: {}.log",
                               found_.package.string()));
    return false;
  }
  return true;
}

void FoundModel::say_faster() const {
  say("the kernels that were selected by measurement answer from here on");
}

void TextModel::take_up() {
  const auto reload = [&] { answerer_->replace_engine([&]() -> Engine& { return load(); }); };
  if (!opened_.engine) reload();  // as it could not be before
  if (!has_faster_kernels()) return;
  reload();
  say_faster();
}

std::string FoundModel::fingerprint() const {
  constexpr std::size_t kMost = 64u << 20;
  return "fp_" + sha256(read_file(package_ / "digests.json", kMost)).substr(0, 12);
}

TextRequest TextModel::request(std::vector<std::int64_t> ids) const {
  return {.ids = std::move(ids),
          .max_new_tokens = choosing().max_new_tokens,
          .sampling = choosing().sampling,
          .penalties = choosing().penalties,
          .stop = stop_};
}

void print_text(const std::string& text) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::string shown = text;
  if (terminal)
    std::ranges::replace_if(
        shown, [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; },
        ' ');
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() ||
      std::fflush(stdout) != 0)
    job_failed("cannot write the answer to stdout: {}", std::strerror(errno));
}

}  // namespace ac
