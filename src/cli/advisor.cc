#include "cli/advisor.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "base/error.h"
#include "cli/command_page.h"

namespace ac {
namespace {

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

std::string not_a_date(const std::string& text) {
  int year = 0, month = 0, day = 0, end = 0;
  std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &end);
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  const bool good = text.size() == 10 && end == 10 && date.ok();
  return good ? "" : "is no day as YYYY-MM-DD";
}

}  // namespace

void add_advisor_options(CLI::App& command, AdvisorOptions& options) {
  const std::string group = std::string(kRare) + ", an advisor";
  command
      .add_option("--advisor", options.who,
                  "Who advises which kernels to try first: anthropic:MODEL, openai:MODEL[@URL], "
                  "ask:FOLDER (questions in files), replay:FILE (a recording) or none")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--advise-share", options.share,
                  "Ask about regions that take at least this share of a step's predicted time, and "
                  "about mixed and complex ones")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 2.0))
      ->group(group);
  command.add_option("--advisor-calls", options.calls, "The most calls, retries included")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000))
      ->group(group);
  command.add_option("--advisor-tokens", options.tokens, "The most tokens, of prompts and replies")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->group(group);
  command.add_option("--advisor-timeout", options.seconds, "Seconds for one call")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0))
      ->group(group);
  command
      .add_option("--advisor-wait", options.wait,
                  "With ask:FOLDER: seconds to wait for replies before going on without them. "
                  "Without this option, missing replies end the command with exit code 5")
      ->check(CLI::Range(0.0, 1e6))
      ->group(group);
  command
      .add_option("--advisor-record", options.record,
                  "Append prompts and replies to this file, for replay:FILE")
      ->type_name("FILE")
      ->group(group);
}

void add_author_options(CLI::App& command, std::string& model, std::string& date) {
  command.add_option("--model", model,
                     "Who answered: with ask:FOLDER, and where a recording does not say it");
  command.add_option("--date", date, "The date of the answers (YYYY-MM-DD), likewise")
      ->check(CLI::Validator(not_a_date, "YYYY-MM-DD"));
}

void check_author(const std::string& who, std::string& model, std::string& date) {
  const std::string kind = who.substr(0, who.find(':'));
  const bool said = !model.empty() || !date.empty();
  if (kind == "ask" && (model.empty() || date.empty()))
    wrong_usage("--advisor ask: files do not say who answered: give --model and --date");
  if (kind != "anthropic" && kind != "openai") return;
  if (said)
    wrong_usage("--model and --date are for replies in files: {} says itself who answers", kind);
  // For a server that does not name its model: the one that was asked for.
  const std::string rest = who.substr(std::min(kind.size() + 1, who.size()));
  model = rest.substr(0, rest.find('@')), date = today();
}

}  // namespace ac
