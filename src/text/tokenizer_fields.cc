#include "text/tokenizer_fields.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "text/unicode.h"

namespace ac::text {

TokenizerFields::TokenizerFields(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) bad_input("{}: expected an object", where_);
}

std::string TokenizerFields::where(std::string_view name) const {
  // The whole file has no name of its own.
  return where_.ends_with(':') ? fmt::format("{} {}", where_, name)
                               : fmt::format("{}.{}", where_, name);
}

bool TokenizerFields::has_value(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found != object_.end() && !found->is_null();
}

const Json& TokenizerFields::value(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  if (found == object_.end() || found->is_null()) refuse(name, "missing");
  return *found;
}

std::string TokenizerFields::text(std::string_view name) const {
  const Json& member = value(name);
  if (!member.is_string()) refuse(name, "expected a text");
  return member.get<std::string>();
}
std::string TokenizerFields::text(std::string_view name, std::string_view fallback) const {
  return has_value(name) ? text(name) : std::string(fallback);
}

bool TokenizerFields::boolean(std::string_view name) const {
  const Json& member = value(name);
  if (!member.is_boolean()) refuse(name, "expected true or false");
  return member.get<bool>();
}
bool TokenizerFields::boolean(std::string_view name, bool fallback) const {
  return has_value(name) ? boolean(name) : fallback;
}

std::int64_t TokenizerFields::integer(std::string_view name, std::int64_t least,
                                      std::int64_t most) const {
  const Json& member = value(name);
  // Beyond the largest signed number it is the unsigned kind.
  const bool fits = member.is_number_integer() &&
                    (!member.is_number_unsigned() || member.get<std::uint64_t>() <= INT64_MAX) &&
                    member.get<std::int64_t>() >= least && member.get<std::int64_t>() <= most;
  if (!fits) refuse(name, fmt::format("expected a whole number from {} to {}", least, most));
  return member.get<std::int64_t>();
}
std::int64_t TokenizerFields::integer(std::string_view name, std::int64_t least, std::int64_t most,
                                      std::int64_t fallback) const {
  return has_value(name) ? integer(name, least, most) : fallback;
}

char32_t TokenizerFields::character(std::string_view name) const {
  const std::string member = text(name);
  std::size_t at = 0;
  if (member.empty() || character_bytes(member[0]) != member.size())
    refuse(name, "expected one character");
  return next_character(member, at);
}

TokenizerFields TokenizerFields::object(std::string_view name) const {
  return {value(name), where(name)};
}

void TokenizerFields::each(std::string_view name,
                           const std::function<void(const TokenizerFields&)>& visit) const {
  const Json& list = value(name);
  if (!list.is_array()) refuse(name, "expected a list");
  for (std::size_t i = 0; i < list.size(); ++i)
    visit({list[i], fmt::format("{}[{}]", where(name), i)});
}

void TokenizerFields::refuse(std::string_view name, std::string_view why) const {
  bad_input("{}: {}", where(name), why);
}

void TokenizerFields::refuse_type(std::string_view kind) const {
  bad_input("{}: no {} of type {} is known here", where_, kind, quote(text("type")));
}

}  // namespace ac::text
