// What kind of model a config.json describes: said before anything is built or traced.
#pragma once

#include <string>

#include "base/json.h"

namespace ac {

// Refuses (bad_input) mixtures of experts and recurrent layers, naming the field that says so. The
// Python capture looks at the model's modules too, which tell where a config leaves it unsaid.
void refuse_unsupported_kind(const Json& config, const std::string& origin);

}  // namespace ac
