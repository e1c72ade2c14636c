// Reads the body of a request, whichever API it comes by.
#pragma once

#include <string_view>

#include "base/json.h"

namespace ac::api {

// As parse_json() does, but a "prompt" that is a list of ids comes as one value: packed().
Json read_body(std::string_view text, const JsonLimits& limits);

}  // namespace ac::api
