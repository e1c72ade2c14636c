// Token ids as one value of a tree: a value for each takes longer than all else that is done with a
// long prompt. No text of JSON has such a value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"

namespace ac {

Json packed(std::span<const std::int64_t> ids);
std::vector<std::int64_t> unpacked(const Json& ids);

}  // namespace ac
