// Ends a text before the first of some strings that is complete, while the text comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ac::text {

class StopStrings {
 public:
  // None of them may be empty.
  explicit StopStrings(std::vector<std::string> strings);

  // The part of the text that is known to stand before any stop string. What may be the beginning
  // of one is held back.
  std::string push(std::string_view piece);
  // What was held back, at the end of a text that has no stop string.
  std::string finish();
  // Whether a stop string has come. Nothing may be pushed then.
  bool found() const { return found_; }
  const std::string& which() const { return which_; }  // that was found

 private:
  std::size_t kept() const;

  std::vector<std::string> strings_;
  std::string held_, which_;
  bool found_ = false;
};

}  // namespace ac::text
