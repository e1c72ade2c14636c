#include "advise/find_object.h"

#include <fmt/format.h>

#include <algorithm>

#include "advise/limits.h"
#include "advise/plain_text.h"
#include "base/error.h"

namespace ac {
namespace {

constexpr JsonLimits kLimits{.bytes = kMaxReplyBytes, .depth = 8, .values = 10'000};
// Braces that begin no object of ours, after which reading ends: each may cost a look at the rest.
constexpr int kMaxFailures = 64;

// Behind the brace that closes the one at `begin`; npos if none does.
std::size_t end_of_object(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

FoundObject find_object(std::string_view text, const std::vector<std::string_view>& keys) {
  if (text.size() > kMaxReplyBytes)
    return {{},
            fmt::format("{} bytes, more than the {} that are read", text.size(), kMaxReplyBytes)};
  FoundObject found{{}, "it holds no JSON object"};
  int failures = 0;
  for (std::size_t at = text.find('{'); at != text.npos && failures < kMaxFailures;
       at = text.find('{', at)) {
    const std::size_t end = end_of_object(text, at);
    std::string why = "its JSON object does not end";
    if (end != text.npos) {
      try {
        Json object = parse_json(text.substr(at, end - at), "reply", kLimits);
        if (std::any_of(keys.begin(), keys.end(),
                        [&](std::string_view key) { return object.contains(key); })) {
          found.object = std::move(object);
          at = end;
          continue;
        }
        why = "its JSON object has none of the keys that were asked for";
      } catch (const Error& error) {
        why = plain_text(error.what(), kMaxNoteBytes);
      }
    }
    if (failures++ == 0) found.why = why;
    ++at;
  }
  return found;
}

}  // namespace ac
