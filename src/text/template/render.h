// Runs a parsed template over its input.
#pragma once

#include <functional>
#include <string>

#include "text/template/meter.h"
#include "text/template/syntax.h"

namespace ac::jinja {

// What went wrong while a template ran, and where.
struct RenderError {
  Position at;
  std::string message;
};

// `input` makes a dict of the variables, under the same limits. Throws a RenderError.
std::string render(const Syntax& syntax, const std::function<Value()>& input, const Limits& limits);

}  // namespace ac::jinja
