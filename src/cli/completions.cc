#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "cli/command_page.h"

namespace ac {
namespace {

// Pages of a program and of all its commands, parents first.
std::vector<Page> pages_of(const CLI::App& program) {
  std::vector<Page> pages;
  const std::function<void(const CLI::App&)> add = [&](const CLI::App& command) {
    pages.push_back(page_of(command));
    for (const CLI::App* each : commands_of(command)) add(*each);
  };
  add(program);
  return pages;
}

std::vector<Entry> options_of(const Page& page) {
  std::vector<Entry> options;
  for (const Section& section : page.sections)
    for (const Entry& entry : section.entries)
      if (entry.names.front().starts_with('-')) options.push_back(entry);
  return options;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// What an argument may be, where that is one of a few words.
std::vector<std::string> choices_of(const Page& page) {
  return page.arguments.empty() ? std::vector<std::string>() : page.arguments.front().choices;
}

bool takes_files(const Page& page) { return page.commands.empty() && choices_of(page).empty(); }

// The first words of a text, up to where it begins to explain.
std::string shortened(const std::string& about) {
  std::size_t end = about.size();
  for (const char* mark : {"; ", ". ", ": ", " ("}) end = std::min(end, about.find(mark));
  return about.substr(0, end);
}

// In single quotes, for bash and zsh.
std::string shell_quoted(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// "agentcompile study record" to "_agentcompile_study_record".
std::string function_name(std::string name) {
  std::ranges::replace_if(name, [](char c) { return c == ' ' || c == '-'; }, '_');
  return "_" + name;
}

// "'agentcompile bench' 'agentcompile chat' ...": what stands on the line before the last word.
std::string quoted_commands(const std::vector<Page>& pages, const char* between) {
  std::vector<std::string> names;
  for (const Page& page : pages) names.push_back(shell_quoted(page.name));
  return fmt::format("{}", fmt::join(names.begin() + 1, names.end(), between));
}

// What _arguments is told about one option.
std::string zsh_option(const Entry& option) {
  const auto plain = [](std::string text) {
    for (const char* special : {"\\", "[", "]", ":"})
      text = replaced(text, special, std::string("\\") + special);
    return text;
  };
  std::string names = option.names.front(), others;
  if (option.names.size() > 1) {
    others = fmt::format("'({})'", fmt::join(option.names, " "));
    names = fmt::format("{{{}}}", fmt::join(option.names, ","));
  }
  std::string rest = "[" + plain(shortened(option.about)) + "]";
  if (!option.choices.empty())
    rest += ":value:(" + joined(option.choices) + ")";
  else if (option.is_file())
    rest += option.value == "FOLDER" ? ":folder:_files -/" : ":file:_files";
  else if (!option.value.empty())
    rest += ":" + plain(option.value) + ": ";
  return others + names + shell_quoted(rest);
}

}  // namespace

std::string bash_completions(const CLI::App& program) {
  const std::vector<Page> pages = pages_of(program);
  std::string values, words;
  for (const Page& page : pages) {
    std::vector<std::string> first = choices_of(page), options;
    for (const Entry& command : page.commands) first.push_back(command.names.front());
    for (const Entry& option : options_of(page)) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      std::vector<std::string> places;
      for (const std::string& name : option.names)
        places.push_back(shell_quoted(page.name + " " + name));
      std::string what = "return";
      if (!option.choices.empty()) what = "words=" + shell_quoted(joined(option.choices));
      if (option.is_file()) what = "files=1";
      values += fmt::format("    {}) {} ;;\n", fmt::join(places, " | "), what);
    }
    words += fmt::format("        {}) options={} words={} files={} ;;\n", shell_quoted(page.name),
                         shell_quoted(joined(options)), shell_quoted(joined(first)),
                         takes_files(page) ? "1" : "");
  }
  return fmt::format(
      R"(# Completions of agentcompile for bash; made by: agentcompile completions bash
_agentcompile() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command=agentcompile options= words= files= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {})
        command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}    *)
      case "$command" in
{}      esac
      [[ $current != -* ]] || words=$options files= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $files ]]; then
    compopt -o filenames
    local IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}}
complete -F _agentcompile agentcompile
)",
      quoted_commands(pages, " | "), values, words);
}

std::string zsh_completions(const CLI::App& program) {
  std::string out =
      "#compdef agentcompile\n# Completions of agentcompile for zsh; made by: agentcompile "
      "completions zsh\n";
  for (const Page& page : pages_of(program)) {
    const std::string name = function_name(page.name);
    out += fmt::format("\n{}() {{\n", name);
    std::string arguments;
    for (const Entry& option : options_of(page)) arguments += " \\\n    " + zsh_option(option);
    if (page.commands.empty()) {
      const std::string argument =
          takes_files(page) ? "*:file:_files" : "1:value:(" + joined(choices_of(page)) + ")";
      out += fmt::format("  _arguments{} \\\n    '{}'\n}}\n", arguments, argument);
      continue;
    }
    std::string commands, cases;
    for (const Entry& command : page.commands) {
      const std::string& word = command.names.front();
      commands += fmt::format(
          "\n    {}", shell_quoted(word + ":" + replaced(shortened(command.about), ":", "\\:")));
      cases += fmt::format("\n        {}) {} ;;", word, function_name(page.name + " " + word));
    }
    out += fmt::format(R"(  local state line
  local -a commands=({}
  )
  _arguments -C{} \
    '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $line[1] in{}
      esac ;;
  esac
}}
)",
                       commands, arguments, cases);
  }
  return out + "\n_agentcompile \"$@\"\n";
}

std::string fish_completions(const CLI::App& program) {
  const std::vector<Page> pages = pages_of(program);
  std::string out = fmt::format(
      R"(# Completions of agentcompile for fish; made by: agentcompile completions fish
function __agentcompile_at
    set -l command agentcompile
    for word in (commandline -opc)
        if contains -- "$command $word" {}
            set command "$command $word"
        end
    end
    test "$command" = "$argv"
end
complete -c agentcompile -f
)",
      quoted_commands(pages, " "));
  for (const Page& page : pages) {
    const std::string at =
        fmt::format("complete -c agentcompile -n '__agentcompile_at {}'", page.name);
    for (const Entry& command : page.commands)
      out += fmt::format("{} -a {} -d {}\n", at, command.names.front(),
                         fish_quoted(shortened(command.about)));
    if (takes_files(page)) out += at + " -F\n";
    if (!choices_of(page).empty())
      out += fmt::format("{} -a {}\n", at, fish_quoted(joined(choices_of(page))));
    for (const Entry& option : options_of(page)) {
      out += at;
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty())
        out += fmt::format(" -x -a {}", fish_quoted(joined(option.choices)));
      else if (option.is_file())
        out += " -r -F";
      else if (!option.value.empty())
        out += " -x";
      out += " -d " + fish_quoted(shortened(option.about)) + "\n";
    }
  }
  return out;
}

}  // namespace ac
