// Python's two ways to format strings.
#pragma once

#include <string>
#include <string_view>

#include "text/template/value.h"

namespace ac::jinja {

// format % values
std::string printf_style(std::string_view format, const Value& values);
// format.format(arguments)
std::string brace_style(std::string_view format, const Arguments& arguments);

}  // namespace ac::jinja
