#include "api/json_call.h"

#include <utility>

namespace ac::api {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

// A string of JSON as text; empty if it is none.
std::string string_of(const std::string& json) {
  const Json value = Json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

Json json_in(const std::string& text) {
  bool deep = false;
  const auto look = [&](int depth, Json::parse_event_t, Json&) {
    deep |= depth >= JsonLimits{}.depth;
    return !deep;
  };
  Json value = Json::parse(text, look, false);
  return deep ? Json(Json::value_t::discarded) : value;
}

std::size_t JsonEnd::push(std::string_view text) {
  for (std::size_t i = 0; i < text.size() && !done_; ++i) {
    const char c = text[i];
    if (!begun()) {
      if (is_space(c)) continue;
      first_ = c;
      in_string_ = c == '"';
      depth_ = c == '{' || c == '[' ? 1 : 0;
      continue;
    }
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        done_ = depth_ == 0;
      }
    } else if (depth_ > 0) {
      in_string_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') done_ = --depth_ == 0;
    } else if (is_space(c) || c == ',' || c == '}' || c == ']') {
      done_ = true;  // of a number or a word, which this is no part of
      return i;
    }
    if (done_) return i + 1;
  }
  return text.size();
}

std::size_t JsonCall::push(std::string_view text, std::vector<Part>& out) {
  std::size_t at = 0;
  while (at < text.size() && at_ != At::end) {
    if (at_ == At::value) {
      const std::size_t bytes = value_.push(text.substr(at));
      raw_ += text.substr(at, bytes);
      take_value(text.substr(at, bytes), out);
      at += bytes;
      if (value_.done()) end_value(out);
      continue;
    }
    raw_ += text[at];
    step(text[at++], out);
  }
  return at;
}

void JsonCall::step(char c, std::vector<Part>& out) {
  switch (at_) {
    case At::begin:
      if (is_space(c)) return;
      at_ = c == '{' ? At::key : At::end;
      return;
    case At::key:
      if (!value_.begun()) {
        if (is_space(c)) return;
        if (c == '}') return end(out);
        if (c != '"') {
          at_ = At::end;
          return;
        }
      }
      key_ += c;
      value_.push({&c, 1});
      if (!value_.done()) return;
      key_ = string_of(key_);
      at_ = At::colon;
      return;
    case At::colon:
      if (is_space(c)) return;
      at_ = c == ':' ? At::value : At::end;
      value_ = {};
      text_.clear();
      return;
    case At::comma:
      if (is_space(c)) return;
      if (c == '}') return end(out);
      at_ = c == ',' ? At::key : At::end;
      value_ = {};
      key_.clear();
      return;
    case At::value:
    case At::end:
      return;
  }
}

void JsonCall::take_value(std::string_view bytes, std::vector<Part>& out) {
  if (!value_.begun()) return;
  const bool first = text_.empty();
  if (first) bytes.remove_prefix(std::min(bytes.find_first_not_of(kSpace), bytes.size()));
  if ((key_ == "arguments" || key_ == "parameters") && value_.first() == '{') {
    text_ = "{";
    give_arguments(bytes, out);
  } else {
    text_ += bytes;
  }
}

void JsonCall::end_value(std::vector<Part>& out) {
  at_ = At::comma;
  if (key_ == "name" && name_.empty()) {
    name_ = string_of(text_);
    if (name_.empty() || (accepts_ && !accepts_(name_))) {
      at_ = At::end;
      return;
    }
    called_ = true;
    out.push_back({Part::Kind::call, name_});
    if (!held_.empty()) give_arguments(std::exchange(held_, {}), out);
  } else if ((key_ == "arguments" || key_ == "parameters") && value_.first() == '"') {
    give_arguments(string_of(text_), out);  // some models write JSON in a string
  }
}

void JsonCall::give_arguments(std::string_view bytes, std::vector<Part>& out) {
  if (bytes.empty()) return;
  argued_ = true;
  if (called_)
    out.push_back({Part::Kind::arguments, std::string(bytes)});
  else
    held_ += bytes;
}

void JsonCall::end(std::vector<Part>& out) {
  at_ = At::end;
  if (called_ && !argued_) give_arguments("{}", out);
}

}  // namespace ac::api
