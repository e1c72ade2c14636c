#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "cli/command_page.h"

namespace ac {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '~')
      out += "\\(ti";
    else
      out += c;
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string bold(std::string_view text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escaped(text) + "\\fR"; }

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// "agentcompile study record" has the page agentcompile-study-record.
std::string page_name(std::string name) {
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string list_of(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& entry : entries) {
    std::vector<std::string> names;
    for (const std::string& name : entry.names) names.push_back(bold(name));
    const bool is_option = entry.names.front().starts_with('-');
    out += fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "),
                       is_option && !entry.value.empty() ? " " + italic(entry.value) : "",
                       escaped(entry.about));
  }
  return out;
}

}  // namespace

std::string man_page(const Page& page) {
  std::string out = fmt::format(
      ".TH {} 1 \"\" \"agentcompile {}\" \"AgentCompile\"\n.SH NAME\n{} \\- {}\n",
      upper(page_name(page.name)), AC_VERSION, escaped(page_name(page.name)), escaped(page.about));
  out += fmt::format(".SH SYNOPSIS\n{}{}\n", bold(page.name),
                     escaped(page.usage.substr(page.name.size())));
  if (!page.notes.empty()) out += ".SH DESCRIPTION\n" + escaped(page.notes) + "\n";
  if (!page.arguments.empty()) out += ".SH ARGUMENTS\n" + list_of(page.arguments);
  std::string see_also;
  if (!page.commands.empty()) {
    out += ".SH COMMANDS\n";
    for (const Entry& command : page.commands)
      out += fmt::format(".TP\n.BR {} (1)\n{}\n",
                         escaped(page_name(page.name + " " + command.names.front())),
                         escaped(command.about));
  }
  for (const Section& section : page.sections)
    out += fmt::format(".SH {}\n", upper(section.title)) + list_of(section.entries);
  if (!page.examples.empty()) {
    out += ".SH EXAMPLES\n.nf\n";
    for (const std::string& line : page.examples) out += escaped(line) + "\n";
    out += ".fi\n";
  }
  if (const std::size_t above = page.name.rfind(' '); above != std::string::npos)
    out +=
        fmt::format(".SH SEE ALSO\n.BR {} (1)\n", escaped(page_name(page.name.substr(0, above))));
  return out;
}

}  // namespace ac
