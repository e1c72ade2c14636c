// The page: one file with its style and its script, which draws everything from the document.
#pragma once

#include <string>

#include "base/json.h"

namespace ac {

// No text of the document can end the script that holds it.
std::string html_of(const Json& document);

}  // namespace ac
