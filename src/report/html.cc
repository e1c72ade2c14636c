#include "report/html.h"

#include <array>
#include <string_view>

#include "report/assets.h"

namespace ac {
namespace {

// JSON in which no < is left, so that nothing in it looks like a tag; and what is no UTF-8 is
// replaced.
std::string inert(const Json& document) {
  std::string text;
  for (const char c : document.dump(-1, ' ', true, Json::error_handler_t::replace))
    text += c == '<' ? "\\u003c" : std::string(1, c);
  return text;
}

}  // namespace

std::string html_of(const Json& document) {
  std::string page;
  const ReportFiles& files = report_files();
  std::string_view rest = files.page;
  const std::string inert_document = inert(document);
  const std::array<std::pair<std::string_view, std::string_view>, 3> parts{
      {{"/* STYLE */", files.style},
       {"/* DOCUMENT */", inert_document},
       {"/* SCRIPT */", files.script}}};
  for (const auto& [place, text] : parts) {
    const std::size_t at = rest.find(place);
    page += rest.substr(0, at);
    page += text;
    rest = rest.substr(at + place.size());
  }
  return page += rest;
}

}  // namespace ac
