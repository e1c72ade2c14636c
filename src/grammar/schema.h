// JSON schemas, in the form in which the library means by them what JSON Schema means.
#pragma once

#include <string>

#include "base/json.h"

namespace ac::grammar {

// Refused: what the library would not heed, and what nothing fits. `where` is the parameter that
// the schema stands in; the message says where in the schema.
//
// An object has only the properties that its schema names, unless it names none or has
// additionalProperties; likewise the items of an array. So an answer may be stricter than the
// schema.
std::string normal_schema(const Json& schema, const std::string& where);

}  // namespace ac::grammar
