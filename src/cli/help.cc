#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/command_page.h"
#include "cli/commands.h"

namespace ac {
namespace {

// Columns of the terminal on stdout, but no longer lines than one reads with ease.
std::size_t page_width() {
  constexpr std::size_t kMost = 100, kLeast = 50;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMost;
  return std::clamp<std::size_t>(size.ws_col, kLeast, kMost);
}

}  // namespace

void describe_commands(CLI::App& app) {
  app.set_help_flag("-h,--help", "Show the usual options, and examples");
  app.set_help_all_flag("--help-all", "Show all options");
  app.formatter_fn([](const CLI::App* command, const std::string&, CLI::AppFormatMode mode) {
    return help_text(page_of(*command), mode == CLI::AppFormatMode::All, page_width());
  });
}

void add_help_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("help", "Show the manual of a command");
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto man = std::make_shared<bool>(false);
  command->add_option("COMMAND", *words, "The command: compile, or study record");
  command->add_flag("--man", *man, "As a man page, in roff: ... | man -l -");
  command->footer(
      "Examples:\n"
      "  agentcompile help compile\n"
      "  agentcompile help study record --man | man -l -");
  command->callback([&app, words, man] {
    const CLI::App* found = &app;
    for (const std::string& word : *words) {
      const auto commands = commands_of(*found);
      const auto next = std::ranges::find_if(
          commands, [&](const CLI::App* each) { return each->get_name() == word; });
      if (next == commands.end()) wrong_usage("help: {} is not a command", quote(word));
      found = *next;
    }
    const Page page = page_of(*found);
    fmt::print("{}", *man ? man_page(page) : help_text(page, true, page_width()));
  });
}

void add_completions_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("completions", "Print completions of this program for a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(agentcompile completions bash)            # in ~/.bashrc\n"
      "  agentcompile completions zsh > ~/.zfunc/_agentcompile\n"
      "  agentcompile completions fish > ~/.config/fish/completions/agentcompile.fish");
  command->callback([&app, shell] {
    if (*shell == "bash") fmt::print("{}", bash_completions(app));
    if (*shell == "zsh") fmt::print("{}", zsh_completions(app));
    if (*shell == "fish") fmt::print("{}", fish_completions(app));
  });
}

}  // namespace ac
