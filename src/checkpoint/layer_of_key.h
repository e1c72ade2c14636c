// Which layer a tensor of a checkpoint is of.
#pragma once

#include <optional>
#include <string>

namespace ac {

// The first number between two dots: of the layer, in all architectures.
std::optional<int> layer_of_key(const std::string& key);

}  // namespace ac
