#include "cli/text_model.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "base/environment.h"
#include "base/error.h"
#include "cli/page.h"
#include "program/traffic.h"
#include "text/stop_strings.h"
#include "text/text_files.h"
#include "text/think_tags.h"

namespace ac {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Tokens are computed some steps ahead of those that are given: the pace of fewer says nothing.
constexpr int kTimedTokens = 16;
// A character that no text has a use for.
constexpr std::string_view kMark = "\uE0F5";

// The package's own folder of texts, each file checked against its digest.
fs::path checked_text(const fs::path& package) {
  const PackageFiles files(package);
  const fs::path folder = package / text::kTextFolder;
  if (!files.lists(fmt::format("{}/tokenizer.json", text::kTextFolder))) no_tokenizer(package);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_directory())
      files.check(entry.path().lexically_relative(package).generic_string());
  return folder;
}

// Another process may put a package in the place of this one while it is read: then once more.
void reading_whole(const fs::path& package, const std::function<void()>& read) {
  const auto identity = [&] {
    struct stat info{};
    return stat(package.c_str(), &info) == 0 ? info.st_ino : 0;
  };
  for (;;) {
    const auto before = identity();
    try {
      return read();
    } catch (const Error&) {
      if (identity() == before) throw;
    }
  }
}

// Decodes an answer, and ends it at a stop string.
class AnswerText {
 public:
  // An answer that goes on with a prompt is decoded as a part of the whole.
  AnswerText(const text::Tokenizer& tokenizer, const std::vector<std::int64_t>& prompt,
             std::vector<std::string> stop)
      : tokenizer_(tokenizer), detokenizer_(tokenizer, true), stop_(std::move(stop)) {
    if (prompt.empty()) return;
    std::size_t shown = 0;
    std::vector<text::TokenId> known;
    for (const std::int64_t id : prompt)
      if (tokenizer.has(static_cast<text::TokenId>(id))) {
        known.push_back(static_cast<text::TokenId>(id));
        shown += detokenizer_.push(known.back()).size();
      }
    of_prompt_ = tokenizer.decode(known, true).size() - shown;
  }

  std::string push(std::int64_t id) {
    // Some models have more rows than tokens.
    if (!tokenizer_.has(static_cast<text::TokenId>(id))) return {};
    return keep(stop_.push(own(detokenizer_.push(static_cast<text::TokenId>(id)))));
  }
  std::string finish() {
    if (stop_.found()) return {};
    std::string last = stop_.push(own(detokenizer_.finish()));
    if (!stop_.found()) last += stop_.finish();
    return keep(std::move(last));
  }
  bool stopped() const { return stop_.found(); }
  const std::string& text() const { return text_; }

 private:
  // Without what was held back of the prompt.
  std::string own(std::string text) {
    const std::size_t skipped = std::min(of_prompt_, text.size());
    of_prompt_ -= skipped;
    return text.substr(skipped);
  }
  std::string keep(std::string text) {
    text_ += text;
    return text;
  }

  const text::Tokenizer& tokenizer_;
  text::Detokenizer detokenizer_;
  text::StopStrings stop_;
  std::size_t of_prompt_ = 0;  // bytes
  std::string text_;
};

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
  command.add_flag("--full", full,
                   "If MODEL is compiled: select kernels by measurement before the first answer, "
                   "which takes minutes, once. Else quick ones answer first");
  command.add_flag("--tune-after", tune_after,
                   "If quick kernels answer: have faster ones selected by a process that goes on "
                   "when this command has ended");
  flags.add_to(command, default_tokens);
  command.add_flag("--quiet,-q", engine.quiet, "No progress and no statistics on stderr");
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

TextModel::TextModel(const TextArguments& arguments, bool chats) : arguments_(arguments) {
  arguments.flags.check();
  for (const std::string& variable : arguments.variables) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos)
      wrong_usage("--template-arg: {} is not NAME=VALUE", variable);
    const std::string value = variable.substr(equals + 1);
    const Json parsed = Json::parse(value, nullptr, false);
    variables_[variable.substr(0, equals)] = parsed.is_discarded() ? Json(value) : parsed;
  }
  found_ = arguments.model.package({.device = arguments.engine.device,
                                    .tokenizer = arguments.tokenizer.empty(),
                                    .full = arguments.full,
                                    .quiet = arguments.engine.quiet});
  package_ = choose_package(found_.package, arguments.engine.device);
  // What can be wrong with texts is said before gigabytes of weights are read.
  reading_whole(package_, [&] { load_text(package_, chats); });
  open();
  const std::int64_t vocab = opened_.engine->program().vocab;
  for (auto id = static_cast<text::TokenId>(vocab); std::cmp_less(id, tokenizer_->size()); ++id)
    if (tokenizer_->has(id) && !tokenizer_->is_special(id))
      bad_input(
          "the tokenizer in {} has {} tokens, and the model's vocabulary {}: it is another "
          "model's; "
          "name the right one by --tokenizer",
          text_.string(), tokenizer_->size(), vocab);
}

void TextModel::open() {
  generator_.reset();
  reading_whole(package_, [&] {
    if (opened_.device)
      arguments_.engine.reopen(package_, opened_);
    else
      opened_ = arguments_.engine.open(package_, false, std::move(found_.device));
  });
  if (const Environment environment = read_environment(); !turns_ && !environment.cache.empty())
    turns_.emplace(turns_file(builder_options(environment).cache, opened_.device->info().sm > 0));
  generator_ = package_generator(*opened_.engine);
}

void TextModel::say(const std::string& what) const {
  if (!arguments_.engine.quiet) fmt::print(stderr, "[{}]\n", what);
}

void TextModel::select_beside() {
  if (found_.to_full.empty() || selection_) return;
  const fs::path log = found_.package.string() + ".log";
  selection_.emplace(
      found_.to_full, log,
      arguments_.tune_after ? BackgroundProcess::Lives::on : BackgroundProcess::Lives::with_us);
  say(fmt::format("quick kernels answer for now; process {} selects faster ones: {}",
                  selection_->id(), log.string()));
}

void TextModel::take_up() {
  if (!opened_.engine) open();  // as it could not be before
  if (!selection_ || !selection_->has_ended()) return;
  selection_.reset();
  if (read_program(PackageFiles(package_)).quick) {
    warn_on_stderr(fmt::format("no faster kernels were selected, and quick ones go on: {}.log",
                               found_.package.string()));
    return;
  }
  open();
  say("the kernels that were selected by measurement answer from here on");
}

void TextModel::load_text(const fs::path& package, bool chats) {
  if (arguments_.tokenizer.empty()) {
    text_ = checked_text(package);
  } else {
    text_ = arguments_.tokenizer;
    if (!fs::exists(text_ / "tokenizer.json")) no_tokenizer(text_);
  }
  tokenizer_ = std::make_unique<text::Tokenizer>(text::Tokenizer::load(text_));
  if (chats)
    template_ = ChatTemplates::load(
                    arguments_.chat_template.empty() ? text_ : fs::path(arguments_.chat_template))
                    .choose(std::nullopt, false);
  const std::string origin = (text_ / "generation_config.json").string();
  const text::GenerationConfig config = text::read_generation_config(text_);
  for (const std::string& name : config.unknown)
    warn_on_stderr(fmt::format("{} asks for {}, which agentcompile does not do", origin, name));
  choosing_ = arguments_.flags.with(config, origin);
}

std::string TextModel::render(const Json& messages) const {
  AC_ASSERT(template_.has_value());
  Json input{{"messages", messages}, {"add_generation_prompt", true}};
  input.update(variables_);
  return template_->render(input);
}

bool TextModel::has_special(const std::string& text) const {
  return tokenizer_->encode(text, {.parse_special = true}) != tokenizer_->encode(text);
}

TextModel::ChatPrompt TextModel::chat_prompt(const Json& messages) const {
  // The template gets a mark in place of a text that has a special token.
  Json marked = messages;
  std::map<std::string, std::string> texts;  // by mark
  for (Json& message : marked) {
    const auto text = message.at("content").get<std::string>();
    if (text.find(kMark) == std::string::npos && !has_special(text)) continue;
    const std::string mark = fmt::format("{}{}{}", kMark, texts.size(), kMark);
    texts[mark] = text;
    message["content"] = mark;
  }
  const std::string prompt = render(marked);
  ChatPrompt result{.ids = {}, .thinking = text::opens_thinking(prompt)};
  const auto add = [&](std::string_view part, bool parse_special) {
    for (const text::TokenId id : tokenizer_->encode(part, {.parse_special = parse_special}))
      result.ids.push_back(id);
  };
  for (std::size_t at = 0;;) {
    const std::size_t begin = prompt.find(kMark, at);
    const std::size_t end = begin == std::string::npos ? begin : prompt.find(kMark, begin + 1);
    const std::string mark =
        end == std::string::npos ? std::string() : prompt.substr(begin, end + kMark.size() - begin);
    const auto text = texts.find(mark);
    add(std::string_view(prompt).substr(at, text == texts.end() ? prompt.npos : begin - at), true);
    if (text == texts.end()) return result;
    add(text->second, false);
    at = begin + mark.size();
  }
}

std::vector<std::int64_t> TextModel::ids_of_text(std::string_view text, bool parse_special) const {
  const auto ids = tokenizer_->encode(text, {.add_special = true, .parse_special = parse_special});
  return {ids.begin(), ids.end()};
}

TextAnswer TextModel::answer(const std::vector<std::int64_t>& ids, bool continues,
                             std::optional<std::int64_t> max_new_tokens,
                             const std::function<void(const std::string&)>& on_text,
                             const std::function<bool()>& stopped) {
  if (ids.empty())
    bad_input("the prompt is empty, and the tokenizer puts nothing before a text: write some text");
  const Program& program = opened_.engine->program();
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const std::int64_t room = program.max_context - tokens + 1;  // the last one is not run
  if (room < 1) bad_input("{}, and the prompt has {}", room_of(program), tokens);
  TokenRequest request{.ids = ids,
                       .max_new_tokens = std::min(max_new_tokens.value_or(room), room),
                       .stop_ids = {},
                       .sampling = choosing_.sampling,
                       .penalties = choosing_.penalties};
  for (const text::TokenId id : tokenizer_->end_of_text())
    if (id < program.vocab) request.stop_ids.push_back(id);
  generator_->check(request);

  std::optional<TimingTurn::Turn> turn;
  if (turns_) turn.emplace(turns_->answer());
  TextAnswer answer;
  answer.prompt_tokens = tokens;
  const auto is_stopped = [&] { return stopped && stopped(); };
  AnswerText text(*tokenizer_, continues ? ids : std::vector<std::int64_t>{},
                  arguments_.flags.stop);
  const auto begin = Clock::now();
  auto first = begin, last = begin;
  answer.cached = generator_->prompt(request, 0, is_stopped);
  const auto show = [&](const std::string& piece) {
    if (!piece.empty()) on_text(piece);
  };
  if (!is_stopped())
    generator_->generate(request, [&](std::int64_t token) {
      last = Clock::now();
      if (answer.ids.empty()) first = last;
      answer.ids.push_back(token);
      if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
        answer.finish = "stop";
        return false;
      }
      show(text.push(token));
      if (text.stopped()) answer.finish = "stop";
      return !text.stopped() && !is_stopped();
    });
  if (answer.finish != "stop" && is_stopped()) answer.finish = "interrupted";
  show(text.finish());
  if (text.stopped()) answer.finish = "stop";
  answer.text = text.text();
  answer.full = request.max_new_tokens == room && !(max_new_tokens && *max_new_tokens == room);
  answer.first_token_seconds = seconds_between(begin, first);
  if (const auto more = static_cast<double>(answer.ids.size()) - 1; more >= kTimedTokens) {
    answer.token_seconds = seconds_between(first, last) / more;
    answer.memory_share =
        memory_share(tokens + static_cast<std::int64_t>(more) / 2, answer.token_seconds);
  }
  return answer;
}

std::optional<double> TextModel::memory_share(std::int64_t context, double seconds) const {
  const DeviceInfo& device = opened_.device->info();
  if (device.sm == 0 || device.bandwidth <= 0) return std::nullopt;
  const Program& program = opened_.engine->program();
  const Traffic traffic = traffic_of(program, program.phase_of(1, context), 1, context);
  return static_cast<double>(traffic.weights + traffic.cache) / seconds / device.bandwidth;
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
