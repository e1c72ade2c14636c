// The native front end of GGUF files.
#pragma once

#include <filesystem>

#include "capture/model.h"

namespace ac {

// Says on stderr, unless it shall be quiet, which tensors are held in another type than the file's.
Model capture_gguf(const std::filesystem::path& file, bool quiet);

}  // namespace ac
