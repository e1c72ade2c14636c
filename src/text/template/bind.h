// The arguments of a builtin, by place or by name.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "text/template/value.h"

namespace ac::jinja {

class Bound {
 public:
  // Fails for arguments that are too many, too few, unknown or given twice.
  Bound(std::string function, const Arguments& arguments, std::initializer_list<const char*> names,
        std::size_t required = 0);

  // Given, and not None.
  bool has(std::size_t i) const { return !values_[i].is_missing() && !values_[i].is_none(); }
  bool given(std::size_t i) const { return !values_[i].is_missing(); }
  const Value& operator[](std::size_t i) const { return values_[i]; }
  Value get(std::size_t i, Value otherwise) const {
    return given(i) ? values_[i] : std::move(otherwise);
  }
  bool flag(std::size_t i, bool otherwise = false) const {
    return given(i) ? truth(values_[i]) : otherwise;
  }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;  // None counts as not given
  const std::string& text(std::size_t i) const;                       // must be a string

 private:
  std::string function_;
  std::vector<Value> values_;
};

}  // namespace ac::jinja
