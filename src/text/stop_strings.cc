#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ac::text {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) AC_ASSERT(!string.empty());
}

std::string StopStrings::push(std::string_view piece) {
  AC_ASSERT(!found_);
  held_ += piece;
  // By the end and then the beginning: however the text is cut into pieces, it is the same one.
  std::pair first{std::string::npos, std::string::npos};
  for (const std::string& string : strings_)
    if (const std::size_t at = held_.find(string); at != std::string::npos)
      first = std::min(first, {at + string.size(), at});
  found_ = first.first != std::string::npos;
  if (found_) which_ = held_.substr(first.second, first.first - first.second);
  std::string before = held_.substr(0, found_ ? first.second : held_.size() - kept());
  held_.erase(0, found_ ? held_.size() : before.size());
  return before;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

// The length of the longest end of the text that a stop string begins with.
std::size_t StopStrings::kept() const {
  std::size_t most = 0;
  for (const std::string& string : strings_)
    for (std::size_t length = std::min(string.size() - 1, held_.size()); length > most; --length)
      if (held_.ends_with(std::string_view(string).substr(0, length))) most = length;
  return most;
}

}  // namespace ac::text
