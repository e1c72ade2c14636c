// Typed and range-checked access to the members of a config's JSON object. Every error names the
// file and the field and says what was expected, so that no caller has to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ac {

class ConfigFields {
 public:
  // Both must outlive this. `prefix` stands before field names in errors: "rope_scaling.".
  ConfigFields(const Json& value, const std::string& origin, std::string prefix = "");

  // A field that is absent gives the fallback, or an error where there is none. A null is an error
  // like any other wrong type: where null means something, the caller asks first.
  bool has(std::string_view name) const;      // present, perhaps null
  bool is_null(std::string_view name) const;  // present and null
  bool has_value(std::string_view name) const { return has(name) && !is_null(name); }

  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> fallback = {}) const;
  double number(std::string_view name, double least, double most,
                std::optional<double> fallback = {}) const;
  bool boolean(std::string_view name, bool fallback) const;
  std::string text(std::string_view name, std::optional<std::string> fallback = {}) const;

  const Json& operator[](std::string_view name) const;  // the field must be there
  ConfigFields inside(std::string_view name) const;     // the fields of one that is an object
  const std::string& origin() const { return origin_; }

  // "FILE: FIELD is VALUE, expected ..."
  [[noreturn]] void wrong(std::string_view name, const std::string& expected) const;
  // "FILE: FIELD PROBLEM"
  [[noreturn]] void fail(std::string_view name, const std::string& problem) const;

 private:
  const Json* find(std::string_view name) const;

  const Json& object_;
  const std::string& origin_;
  std::string prefix_;
};

// A model's config.json or the like: of at most 16 MiB.
Json read_config_json(const std::filesystem::path& file);

// A JSON value for an error message: short, whatever the value.
std::string brief(const Json& value);

}  // namespace ac
