#include "api/request_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/unicode.h"

namespace ac::api {

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.is_object()                       ? "an object"
                     : value.is_array() || value.is_binary() ? "a list"
                                                             : value.dump(-1, ' ', true);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    refuse(where_, "{} is not a JSON object", where_.empty() ? "the request" : shown(object));
}

std::string Fields::name_of(std::string_view field) const {
  return where_.empty() ? std::string(field) : fmt::format("{}.{}", where_, field);
}

const Json* Fields::find(const char* name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::need(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) wrong(name, "it is missing");
  return *value;
}

std::optional<double> Fields::number(const char* name, double least, double most) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most))
    wrong(name, "{} is not a number from {} to {}", shown(*value), least, most);
  return number;
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t least,
                                            std::int64_t most) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  const bool fits = value->is_number_unsigned()
                        ? std::cmp_less_equal(value->get<std::uint64_t>(), most) &&
                              std::cmp_greater_equal(value->get<std::uint64_t>(), least)
                        : value->is_number_integer() && value->get<std::int64_t>() >= least &&
                              value->get<std::int64_t>() <= most;
  if (!fits) wrong(name, "{} is not an integer from {} to {}", shown(*value), least, most);
  return value->get<std::int64_t>();
}

std::optional<bool> Fields::boolean(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (!value->is_boolean()) wrong(name, "{} is not true or false", shown(*value));
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) wrong(name, "{} is not a string", shown(*value));
  return value->get<std::string>();
}

std::string Fields::needed_text(const char* name) {
  need(name);
  return *text(name);
}

const Json* Fields::array(const char* name) {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_array()) wrong(name, "{} is not a list", shown(*value));
  return value;
}

const Json* Fields::object(const char* name) {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_object()) wrong(name, "{} is not an object", shown(*value));
  return value;
}

std::vector<std::string> Fields::texts(const char* name, std::size_t most) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  std::vector<std::string> texts;
  for (const Json& each : value->is_array() ? *value : Json::array({*value})) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      wrong(name, "{} is not a string of one character or more", shown(each));
    texts.push_back(each.get<std::string>());
  }
  if (texts.size() > most) wrong(name, "there are {} texts, more than {}", texts.size(), most);
  return texts;
}

std::optional<std::string> Fields::word(const char* name,
                                        std::initializer_list<const char*> words) {
  const auto given = text(name);
  if (given && std::ranges::find(words, *given) == words.end())
    wrong(name, "{} is not one of {}", shown(*given), fmt::join(words, ", "));
  return given;
}

void Fields::ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void Fields::only(const char* name, const Json& value, const char* why) {
  const Json* const given = find(name);
  if (given != nullptr && *given != value)
    wrong(name, "only {} is supported: {}", value.dump(), why);
}

void Fields::refuse_rest() const {
  for (const auto& [name, value] : object_.items())
    if (!value.is_null() && !known_.contains(name))
      refuse(name_of(text::repaired_utf8(name.substr(0, 60))), "this parameter is not supported");
}

}  // namespace ac::api
