// Tells the reasoning of a model, which it writes between <think> and </think>, from its answer,
// while the text comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ac::text {

class ThinkTags {
 public:
  // `thinking`: the prompt has opened the reasoning already.
  explicit ThinkTags(bool thinking) : thinking_(thinking) {}

  struct Part {
    std::string text;  // without tags
    bool thinking = false;
    bool operator==(const Part&) const = default;
  };
  // What may be the beginning of a tag is held back.
  std::vector<Part> push(std::string_view piece);
  std::vector<Part> finish();  // what was held back

 private:
  bool thinking_;
  std::string held_;
};

// Whether the answer to such a prompt begins with reasoning.
bool opens_thinking(std::string_view prompt);
// Whether the prompt has reasoning for it, perhaps none, that is over.
bool closes_thinking(std::string_view prompt);

}  // namespace ac::text
