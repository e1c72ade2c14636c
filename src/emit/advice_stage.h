// What a package remembers of its advisor: the questions, what came back, and the audit of each
// item.
#pragma once

#include "compile/compile.h"

namespace ac {

// For plan.json.
Json advice_json(const Compiled& compiled);

// For `inspect PACKAGE --stage advice`, from plan.json.
Json advice_of(const Json& plan);
std::string advice_text(const Json& plan);

}  // namespace ac
