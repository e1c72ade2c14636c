// Where this checkout is, for tests that read its files.
#pragma once

#include <filesystem>

namespace ac {

std::filesystem::path source_folder();

// tests/data
std::filesystem::path test_data();

}  // namespace ac
