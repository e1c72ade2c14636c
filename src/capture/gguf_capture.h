// The native front end of GGUF files.
#pragma once

#include <filesystem>

#include "capture/model.h"

namespace ac {

// Says on stderr, unless it shall be quiet, which tensors stay packed, and which are held in
// the model's type.
Model capture_gguf(const std::filesystem::path& file, bool quiet);

}  // namespace ac
