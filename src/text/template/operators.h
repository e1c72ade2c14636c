// Python's operators, subscripts and attributes.
#pragma once

#include <string_view>

#include "text/template/value.h"

namespace ac::jinja {

Value arithmetic(std::string_view sign, const Value& a, const Value& b);  // + - * / // % **
Value negated(const Value& value, bool minus);                            // -value, +value
bool holds(std::string_view sign, const Value& a, const Value& b);        // == < in ...

// `object.name` prefers attributes, `object[index]` items; both give an undefined value where
// there is neither, and fail for an undefined object.
Value attribute_of(const Value& object, std::string_view name);
Value item_of(const Value& object, const Value& index);
// A bound that is not given is None.
Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step);

// Escaped for HTML, as markup.
Value escaped(const Value& value);

}  // namespace ac::jinja
