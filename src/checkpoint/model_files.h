// The files of a model's directory, by name. Names come from untrusted files (an index, a capture),
// and the directory itself may come from elsewhere: a name or a symlink must not lead outside it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ac {

// Why `name` cannot be the name of a file in a model ("is absolute", ...); empty if it can.
std::string why_unsafe_name(std::string_view name);

// The real path of `name` in `directory`, or nothing if there is no such file. Refused: unsafe
// names, and symlinks that leave the model's own tree. That tree is the directory, and, for a
// snapshot in the HuggingFace cache, the `blobs` folder of the same repository, which its links
// point into.
std::optional<std::filesystem::path> find_model_file(const std::filesystem::path& directory,
                                                     std::string_view name);

}  // namespace ac
