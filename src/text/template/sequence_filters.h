// The filters of sequences and mappings.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "text/template/value.h"

namespace ac::jinja {

using Filter = Value (*)(Renderer& renderer, const Value& value, const Arguments& arguments);
const std::map<std::string, Filter>& sequence_filters();

// "a.b.0": what filters call an attribute. None stands for the item itself.
class AttributePath {
 public:
  explicit AttributePath(const Value& attribute);
  // Where a step gives nothing, `otherwise` takes its place, unless that is missing or None.
  Value of(Value item, const Value& otherwise = {}) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace ac::jinja
