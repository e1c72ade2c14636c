// Reads a call of a function, as models write it in JSON, while it comes in pieces: the arguments
// are given on as they come.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/part.h"
#include "base/json.h"

namespace ac::api {

// JSON that stands inside of a text. Discarded: it is none, or nested deeper than requests are.
Json json_in(const std::string& text);

// Where one JSON value ends. Whether it is valid, its reader sees.
class JsonEnd {
 public:
  // How many of the bytes belong to the value. Some of a number come with what ends it.
  std::size_t push(std::string_view text);
  bool begun() const { return first_ != '\0'; }
  bool done() const { return done_; }
  char first() const { return first_; }  // of the value; white space before it is skipped

 private:
  char first_ = '\0';
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, done_ = false;
};

// {"name": "f", "arguments": {...}}; the latter may be called parameters. Other members are passed
// over.
class JsonCall {
 public:
  // Only a name that `accepts` is a call's. Without it, all are.
  explicit JsonCall(std::function<bool(const std::string&)> accepts = {})
      : accepts_(std::move(accepts)) {}

  // Gives the parts, and how many of the bytes belong to the object, or to what is none.
  std::size_t push(std::string_view text, std::vector<Part>& out);
  // No more belongs to it.
  bool done() const { return at_ == At::end; }
  // It is a call: its beginning was given.
  bool is_call() const { return called_; }
  const std::string& raw() const { return raw_; }  // all that was pushed

 private:
  enum class At { begin, key, colon, value, comma, end };
  void step(char character, std::vector<Part>& out);
  void take_value(std::string_view bytes, std::vector<Part>& out);
  void end_value(std::vector<Part>& out);
  void give_arguments(std::string_view bytes, std::vector<Part>& out);
  void end(std::vector<Part>& out);

  const std::function<bool(const std::string&)> accepts_;
  At at_ = At::begin;
  JsonEnd value_;
  std::string raw_, key_, text_;  // text_: of the value, where it is not given on
  std::string name_, held_;       // held_: arguments that came before the name
  bool called_ = false, argued_ = false;
};

}  // namespace ac::api
