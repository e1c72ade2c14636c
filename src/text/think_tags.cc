#include "text/think_tags.h"

#include <utility>

#include "text/marker.h"

namespace ac::text {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

}  // namespace

std::vector<ThinkTags::Part> ThinkTags::push(std::string_view piece) {
  held_ += piece;
  std::vector<Part> parts;
  const auto give = [&](std::size_t bytes) {
    if (bytes > 0) parts.push_back({held_.substr(0, bytes), thinking_});
    held_.erase(0, bytes);
  };
  for (;;) {
    const std::string_view tag = thinking_ ? kClose : kOpen;
    const std::size_t at = held_.find(tag);
    if (at == std::string::npos) {
      give(held_.size() - beginning_of(tag, held_));
      return parts;
    }
    give(at);
    held_.erase(0, tag.size());
    thinking_ = !thinking_;
  }
}

std::vector<ThinkTags::Part> ThinkTags::finish() {
  if (held_.empty()) return {};
  return {{std::exchange(held_, {}), thinking_}};
}

namespace {

bool ends_with(std::string_view prompt, std::string_view tag) {
  const std::size_t end = prompt.find_last_not_of(" \n\r\t");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(tag);
}

}  // namespace

bool opens_thinking(std::string_view prompt) { return ends_with(prompt, kOpen); }
bool closes_thinking(std::string_view prompt) { return ends_with(prompt, kClose); }

}  // namespace ac::text
