// What an answer is made of, in the order in which it comes: text, reasoning, calls of tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ac::api {

struct Part {
  enum class Kind {
    text,
    reasoning,
    call,       // a call of a function begins: the text is its name
    arguments,  // of the last call, a piece of their JSON
  };
  Kind kind = Kind::text;
  std::string text;
  bool operator==(const Part&) const = default;
};

// Finds the parts in a text that comes in pieces.
class PartParser {
 public:
  virtual ~PartParser() = default;
  virtual void push(std::string_view text, std::vector<Part>& out) = 0;
  virtual void finish(std::vector<Part>& out) = 0;
};

// Gives text on. White space before a call or after one is nobody's text.
class TextBesideCalls {
 public:
  void push(std::string_view text, std::vector<Part>& out) {
    if (text.empty()) return;
    held_ += text;
    const std::size_t end = held_.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) return;
    out.push_back({Part::Kind::text, held_.substr(0, end + 1)});
    held_.erase(0, end + 1);
  }
  void call() {
    held_.clear();
    called_ = true;
  }
  void finish(std::vector<Part>& out) {
    if (!held_.empty() && !called_) out.push_back({Part::Kind::text, held_});
    held_.clear();
  }

 private:
  std::string held_;
  bool called_ = false;
};

}  // namespace ac::api
