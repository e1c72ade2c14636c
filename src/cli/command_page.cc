#include "cli/command_page.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/environment.h"

namespace ac {
namespace {

// Limits beyond this are there to refuse nonsense: they are not worth a reader's time.
constexpr double kUnlimited = 1e6;

// The words of "{host,cuda}"; none of another text.
std::vector<std::string> words_of(const std::string& type) {
  if (!type.starts_with('{') || !type.ends_with('}')) return {};
  return CLI::detail::split(type.substr(1, type.size() - 2), ',');
}

// CLI11 describes a number's range as "INT in [1 - 64]" and "POSITIVE".
std::string limits_of(const std::string& check) {
  if (check == "POSITIVE") return "above 0";
  const std::size_t open = check.find(" in ["), dash = check.find(" - ");
  if (open == std::string::npos || dash == std::string::npos) return "";
  const std::string least = check.substr(open + 5, dash - open - 5);
  const std::string most = check.substr(dash + 3, check.size() - dash - 4);
  return std::stod(most) >= kUnlimited ? "at least " + least : least + " to " + most;
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back("--" + option->get_lnames().front());
  return fmt::format("{}", fmt::join(names, ", "));
}

Entry entry_of(const CLI::Option& option) {
  Entry entry;
  std::vector<std::string> further;
  if (option.get_positional()) {
    entry.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  }
  if (option.get_type_size() != 0) {
    const std::string type = option.get_type_name();
    const std::size_t colon = type.starts_with('{') ? type.npos : type.find(':');
    const std::string check = colon == type.npos ? "" : type.substr(colon + 1);
    entry.value = type.substr(0, colon);
    if (check.starts_with('{')) entry.value = check;
    if (entry.value == "INT" || entry.value == "UINT") entry.value = "N";
    if (entry.value == "FLOAT") entry.value = "X";
    entry.choices = words_of(entry.value);
    if (const std::string limits = limits_of(check); !limits.empty()) further.push_back(limits);
    if (const std::string given = option.get_default_str(); !given.empty())
      further.push_back("default: " + given);
  }
  if (!option.get_needs().empty()) further.push_back("with " + names_of(option.get_needs()));
  if (!option.get_excludes().empty())
    further.push_back("not with " + names_of(option.get_excludes()));
  entry.about = option.get_description();
  if (!further.empty()) {
    const bool goes_on = entry.about.ends_with(')');
    if (goes_on) entry.about.pop_back();
    entry.about += fmt::format("{}{})", goes_on ? "; " : " (", fmt::join(further, "; "));
  }
  return entry;
}

bool is_help(const CLI::App& command, const CLI::Option* option) {
  return option == command.get_help_ptr() || option == command.get_help_all_ptr();
}

// The options of each group, in the order in which groups appear; those that are rare at the end.
// CLI11's option groups are commands without a name: all of their options have one title.
void add_sections(const CLI::App& command, Page& page) {
  const bool is_group = command.get_name().empty();
  std::vector<Section> rare;
  for (const std::string& group : command.get_groups()) {
    if (group.empty()) continue;
    Section section{is_group ? command.get_group() : group, {}, false};
    for (const CLI::Option* option :
         command.get_options([&](const CLI::Option* each) { return each->get_group() == group; }))
      if (!option->get_positional() && !(is_group && is_help(command, option)))
        section.entries.push_back(entry_of(*option));
    section.is_rare = group.starts_with(kRare);
    if (!section.entries.empty()) (section.is_rare ? rare : page.sections).push_back(section);
  }
  page.sections.insert(page.sections.end(), rare.begin(), rare.end());
}

// Indented lines of a footer are examples; others, without the line that announces them, notes.
void read_footer(const std::string& footer, Page& page) {
  for (const std::string& line : CLI::detail::split(footer, '\n')) {
    if (line.starts_with("  ")) {
      page.examples.push_back(line.substr(2));
    } else if (!line.empty() && line != "Example:" && line != "Examples:") {
      page.notes += (page.notes.empty() ? "" : " ") + line;
    }
  }
}

Section environment() {
  Section section{"Environment", {}, true};
  for (const EnvironmentVariable& variable : environment_variables()) {
    const std::string given = variable.fallback;
    section.entries.push_back(
        {{variable.name},
         {},
         {},
         variable.meaning + (given.empty() ? "" : fmt::format(" (default: {})", given))});
  }
  return section;
}

Section exit_codes() {
  constexpr std::array<const char*, 6> kCodes = {
      "ok",        "the job failed",           "wrong usage",
      "bad input", "the GPU failed under way", "an advisor's replies are awaited"};
  Section section{"Exit codes", {}, true};
  for (std::size_t code = 0; code < kCodes.size(); ++code)
    section.entries.push_back({{std::to_string(code)}, {}, {}, kCodes[code]});
  section.entries.push_back({{"128 + N"}, {}, {}, "interrupted by signal N"});
  return section;
}

std::string usage_of(const CLI::App& command, const Page& page) {
  std::string usage = page.name;
  const auto options =
      command.get_options([](const CLI::Option* each) { return !each->get_positional(); });
  if (!options.empty()) usage += " [OPTIONS]";
  for (const CLI::Option* option : options)
    if (option->get_required()) {
      const Entry entry = entry_of(*option);
      usage += " " + entry.names.front() + " " + entry.value;
    }
  for (const CLI::Option* option :
       command.get_options([](const CLI::Option* each) { return each->get_positional(); })) {
    const bool many = option->get_items_expected_max() > 1;
    const std::string name = option->get_name(true) + (many ? "..." : "");
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  if (!page.commands.empty())
    usage += command.get_require_subcommand_min() > 0 ? " COMMAND" : " [COMMAND]";
  return usage;
}

}  // namespace

bool Entry::is_file() const { return value == "FILE" || value == "FOLDER" || value == "PATH"; }

std::vector<const CLI::App*> commands_of(const CLI::App& command) {
  return command.get_subcommands(
      [](const CLI::App* each) { return !each->get_name().empty() && !each->get_group().empty(); });
}

Page page_of(const CLI::App& command) {
  Page page;
  page.about = command.get_description();
  for (const CLI::App* at = &command; at != nullptr; at = at->get_parent())
    page.name = at->get_name() + (page.name.empty() ? "" : " ") + page.name;
  for (const CLI::App* each : commands_of(command))
    page.commands.push_back({{each->get_name()}, {}, {}, each->get_description()});
  for (const CLI::Option* option :
       command.get_options([](const CLI::Option* each) { return each->get_positional(); }))
    page.arguments.push_back(entry_of(*option));
  for (const CLI::App* group :
       command.get_subcommands([](const CLI::App* each) { return each->get_name().empty(); }))
    add_sections(*group, page);
  add_sections(command, page);
  read_footer(command.get_footer(), page);
  page.usage = usage_of(command, page);
  if (command.get_parent() == nullptr) {
    page.sections.push_back(environment());
    page.sections.push_back(exit_codes());
  }
  return page;
}

}  // namespace ac
