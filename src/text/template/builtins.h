// The filters, tests, functions and methods that a template can name.
#pragma once

#include <string>
#include <string_view>

#include "text/template/value.h"

namespace ac::jinja {

bool has_filter(const std::string& name);
bool has_test(const std::string& name);
Value call_filter(Renderer& renderer, const std::string& name, const Value& value,
                  const Arguments& arguments);
bool call_test(Renderer& renderer, const std::string& name, const Value& value,
               const Arguments& arguments);

// range, dict, namespace, raise_exception, ...; missing if there is none of that name.
Value global(std::string_view name);

// A method of a str, list, tuple, dict, ...: what `object.name` gives before items are looked at.
// Missing if there is none.
Value method(const Value& object, std::string_view name);

}  // namespace ac::jinja
