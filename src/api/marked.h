// What a parser has not read yet, of a text that comes in pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/marker.h"

namespace ac::api {

class Unread {
 public:
  void add(std::string_view text) { text_ += text; }
  bool empty() const { return text_.empty(); }
  const std::string& all() const { return text_; }
  void drop(std::size_t bytes) { text_.erase(0, bytes); }
  std::string take(std::size_t bytes) {
    std::string taken = text_.substr(0, bytes);
    drop(bytes);
    return taken;
  }
  void skip_space() { drop(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }

  // What stands before the marker, which is taken, too. Nothing: it has not come; what cannot be
  // part of it is put into `before`, unless that is null.
  bool take_to(std::string_view marker, std::string* before) {
    const std::size_t at = text_.find(marker);
    const bool found = at != std::string::npos;
    if (!found && before == nullptr) return false;
    const std::size_t bytes = found ? at : text_.size() - text::beginning_of(marker, text_);
    std::string taken = take(bytes);
    if (before != nullptr) *before = std::move(taken);
    if (found) drop(marker.size());
    return found;
  }
  // Whether the marker stands here, and if so takes it. Nothing: that is not known yet.
  std::optional<bool> take_if(std::string_view marker) {
    if (text_.starts_with(marker)) {
      drop(marker.size());
      return true;
    }
    if (marker.starts_with(text_)) return std::nullopt;
    return false;
  }

 private:
  std::string text_;
};

}  // namespace ac::api
