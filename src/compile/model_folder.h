// What the folder of a model says besides its graph, and a compilation should heed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "capture/model.h"

namespace ac {

// How many positions its config.json says that the model was made for; nothing where none does.
std::optional<std::int64_t> known_positions(const Model& model);

// Such as "the checkpoint has 4 layers, and the model uses 2 of them"; empty if it uses all.
std::string unused_layers(const Model& model);

}  // namespace ac
