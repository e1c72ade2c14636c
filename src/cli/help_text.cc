#include <fmt/ranges.h>

#include "cli/command_page.h"

namespace ac {
namespace {

constexpr std::size_t kColumn = 28;  // where the meaning of an option begins

// Words from `column` on, as many lines as they need; later lines begin at `indent`.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent,
                    std::size_t width) {
  std::string out;
  bool first = true;
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (word.empty()) continue;
    if (!first && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ', ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  return out + "\n";
}

std::string line_of(const Entry& entry, std::size_t width) {
  const bool is_option = entry.names.front().starts_with('-');
  std::string left = fmt::format("  {}", fmt::join(entry.names, ", "));
  if (is_option && !entry.value.empty()) left += " " + entry.value;
  if (left.size() + 2 > kColumn)
    left += "\n" + std::string(kColumn, ' ');
  else
    left.resize(kColumn, ' ');
  return left + wrapped(entry.about, kColumn, kColumn, width);
}

std::string list_of(const std::string& title, const std::vector<Entry>& entries,
                    std::size_t width) {
  if (entries.empty()) return "";
  std::string out = "\n" + title + ":\n";
  for (const Entry& entry : entries) out += line_of(entry, width);
  return out;
}

}  // namespace

std::string help_text(const Page& page, bool all, std::size_t width) {
  std::string out = wrapped(page.about, 0, 0, width);
  out += wrapped("Usage: " + page.usage, 0, 7, width);
  out += list_of("Arguments", page.arguments, width);
  out += list_of("Commands", page.commands, width);
  bool complete = true;
  for (const Section& section : page.sections) {
    if (section.is_rare && !all) {
      complete = false;
      continue;
    }
    out += list_of(section.title, section.entries, width);
  }
  if (!page.examples.empty()) {
    out += "\nExamples:\n";
    for (const std::string& line : page.examples) out += "  " + line + "\n";
  }
  if (!page.notes.empty()) out += "\n" + wrapped(page.notes, 0, 0, width);
  if (!complete) out += "\n" + page.name + " --help-all shows the rest.\n";
  return out;
}

}  // namespace ac
