// What the program says of its commands, read from the declarations of their options. --help, man
// pages and shell completions are all made of it, so that nothing is said twice.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ac {

// The group of options that few people need: --help leaves them out, --help-all shows them.
inline constexpr const char* kRare = "Rarely needed";

// An option, an argument or another term, and what it means.
struct Entry {
  std::vector<std::string> names;  // "-o", "--output"; or one name
  std::string value;               // "FILE", "{host,cuda}"; empty: a flag, or not an option
  std::vector<std::string> choices;
  std::string about;

  bool is_file() const;  // or a folder
};

struct Section {
  std::string title;
  std::vector<Entry> entries;
  bool is_rare = false;
};

struct Page {
  std::string name;  // "agentcompile study record"
  std::string about, usage;
  std::vector<Entry> arguments;
  std::vector<Section> sections;
  std::vector<Entry> commands;
  std::vector<std::string> examples;  // lines of a shell
  std::string notes;
};

Page page_of(const CLI::App& command);
// The commands under this one that people use.
std::vector<const CLI::App*> commands_of(const CLI::App& command);

// `all`: with what is rarely needed.
std::string help_text(const Page& page, bool all, std::size_t width);
// In roff, for man(1).
std::string man_page(const Page& page);
std::string bash_completions(const CLI::App& program);
std::string zsh_completions(const CLI::App& program);
std::string fish_completions(const CLI::App& program);

}  // namespace ac
