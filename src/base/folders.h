#pragma once

#include <filesystem>

namespace ac {

// Whether nothing may be made in this folder, or in the first one above it that exists: by its
// permissions or by those of its file system.
bool is_read_only(const std::filesystem::path& folder);

}  // namespace ac
