#include "text/tokenizer_pattern.h"

namespace ac::text {

Pattern::Pattern(const TokenizerFields& fields, std::string_view name) {
  const TokenizerFields pattern = fields.object(name);
  if (pattern.has_value("Regex")) {
    regex_ = std::make_shared<Regex>(pattern.text("Regex"), fields.where(name));
    return;
  }
  literal_ = pattern.text("String");
  if (literal_.empty()) fields.refuse(name, "an empty text is everywhere");
}

Pattern Pattern::regex(const std::string& pattern, const std::string& origin) {
  Pattern made;
  made.regex_ = std::make_shared<Regex>(pattern, origin);
  return made;
}

void Pattern::spans(std::string_view text, std::vector<PatternSpan>& spans) const {
  spans.clear();
  std::size_t before = 0;
  each(text, [&](std::size_t begin, std::size_t end) {
    if (before != begin) spans.push_back({before, begin, false});
    spans.push_back({begin, end, true});
    before = end;
  });
  if (before != text.size()) spans.push_back({before, text.size(), false});
}

std::string Pattern::replaced(std::string_view text, std::string_view content) const {
  std::string out;
  out.reserve(text.size());
  std::size_t before = 0;
  each(text, [&](std::size_t begin, std::size_t end) {
    out += text.substr(before, begin - before);
    out += content;
    before = end;
  });
  return out += text.substr(before);
}

}  // namespace ac::text
