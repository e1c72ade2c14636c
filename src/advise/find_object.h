// The JSON in a reply that may have prose, code fences and drafts around it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ac {

struct FoundObject {
  std::optional<Json> object;
  std::string why;  // there is none
};

// The last object that has any of these keys: models think first and answer then.
FoundObject find_object(std::string_view text, const std::vector<std::string_view>& keys);

}  // namespace ac
