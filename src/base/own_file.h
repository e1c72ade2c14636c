// Where the code that runs lies on the disk.
#pragma once

#include <filesystem>

namespace ac {

// The file that this code was loaded from: the program, or a shared library in some other one. What
// is installed beside it is looked for there. Empty where that is not known.
std::filesystem::path own_file();

}  // namespace ac
