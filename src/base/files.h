// Whole-file reading and crash-safe writing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ac {

// Reads a regular file; refuses one larger than `max_bytes` before allocating.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// Writes in place: for a folder that nobody looks into until it is renamed.
void write_file(const std::filesystem::path& path, std::string_view content);

// Writes beside `path` and renames into place, so that a reader (or a crash) sees the old file or
// the new one and nothing between.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace ac
