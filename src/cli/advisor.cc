#include "cli/advisor.h"

#include <string>

#include "cli/command_page.h"

namespace ac {

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

}  // namespace ac
