// Values as JSON, as json.dumps() writes it.
#pragma once

#include <optional>
#include <string>

#include "text/template/value.h"

namespace ac::jinja {

struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of one level; without it all is one line
  std::string item_separator, key_separator;
};

std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace ac::jinja
