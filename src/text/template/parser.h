// From tokens to a template whose names are resolved.
#pragma once

#include <string_view>

#include "text/template/syntax.h"

namespace ac::jinja {

// Throws a SyntaxError.
Syntax parse(std::string_view source);

}  // namespace ac::jinja
