#include "text/template/from_json.h"

#include <limits>

namespace ac::jinja {

Value from_json(const Json& json) {
  if (json.is_null()) return Value(None());
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) return Value(json.get_ref<const std::string&>());
  if (json.is_number()) {
    if (json.is_number_unsigned() &&
        json.get<std::uint64_t>() >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail("the input's number {} does not fit into 64 bits", json.get<std::uint64_t>());
    return Value(json.get<std::int64_t>());
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(from_json(item));
    return Value::list(std::move(items));
  }
  Dict::Items items;
  for (const auto& [key, value] : json.items()) items.emplace_back(Value(key), from_json(value));
  return Value(std::make_shared<const Dict>(std::move(items)));
}

}  // namespace ac::jinja
