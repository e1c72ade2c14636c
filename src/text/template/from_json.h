// The input of a template.
#pragma once

#include "base/json.h"
#include "text/template/value.h"

namespace ac::jinja {

Value from_json(const Json& json);

}  // namespace ac::jinja
