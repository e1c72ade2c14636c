#include "capture/config_fields.h"

#include <cmath>

#include "base/error.h"

namespace ac {

std::string brief(const Json& value) {
  constexpr std::size_t kLongest = 80;
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  };
  if (!value.is_string()) return dump(value);
  const auto& text = value.get_ref<const std::string&>();
  return dump(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
}

ConfigFields::ConfigFields(const Json& value, const std::string& origin, std::string prefix)
    : object_(value), origin_(origin), prefix_(std::move(prefix)) {
  if (!value.is_object())
    bad_input("{}: {} is {}, expected an object", origin,
              prefix_.empty() ? "the config" : prefix_.substr(0, prefix_.size() - 1), brief(value));
}

const Json* ConfigFields::find(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() ? nullptr : &*found;
}

Json read_config_json(const std::filesystem::path& file) {
  return read_json(file, {.bytes = 16u << 20});
}

bool ConfigFields::has(std::string_view name) const { return find(name) != nullptr; }

bool ConfigFields::is_null(std::string_view name) const {
  const Json* value = find(name);
  return value && value->is_null();
}

ConfigFields ConfigFields::inside(std::string_view name) const {
  return {(*this)[name], origin_, prefix_ + std::string(name) + "."};
}

const Json& ConfigFields::operator[](std::string_view name) const {
  const Json* value = find(name);
  AC_ASSERT(value);
  return *value;
}

void ConfigFields::fail(std::string_view name, const std::string& problem) const {
  bad_input("{}: {}{} {}", origin_, prefix_, name, problem);
}

void ConfigFields::wrong(std::string_view name, const std::string& expected) const {
  const Json* value = find(name);
  fail(name, fmt::format("is {}, expected {}", value ? brief(*value) : "missing", expected));
}

std::int64_t ConfigFields::integer(std::string_view name, std::int64_t least, std::int64_t most,
                                   std::optional<std::int64_t> fallback) const {
  const Json* value = find(name);
  if (!value && fallback) return *fallback;
  const auto fits = [&] {
    if (!value || !value->is_number_integer()) return false;
    if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) return false;
    const auto number = value->get<std::int64_t>();
    return least <= number && number <= most;
  };
  if (!fits()) wrong(name, fmt::format("an integer from {} to {}", least, most));
  return value->get<std::int64_t>();
}

double ConfigFields::number(std::string_view name, double least, double most,
                            std::optional<double> fallback) const {
  const Json* value = find(name);
  if (!value && fallback) return *fallback;
  const auto fits = [&] {
    if (!value || !value->is_number()) return false;
    const auto number = value->get<double>();
    return std::isfinite(number) && least <= number && number <= most;
  };
  if (!fits()) wrong(name, fmt::format("a number from {} to {}", least, most));
  return value->get<double>();
}

bool ConfigFields::boolean(std::string_view name, bool fallback) const {
  const Json* value = find(name);
  if (!value) return fallback;
  if (!value->is_boolean()) wrong(name, "true or false");
  return value->get<bool>();
}

std::string ConfigFields::text(std::string_view name, std::optional<std::string> fallback) const {
  const Json* value = find(name);
  if (!value && fallback) return *fallback;
  if (!value || !value->is_string()) wrong(name, "a string");
  return value->get<std::string>();
}

}  // namespace ac
