// A model on the command line as a file; and what tells whether it is the one on the disk that
// something in a cache was made from.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"

namespace ac {

// "FILE.py" of "FILE.py:factory"; of other texts all.
std::string file_of(const std::string& source);
// Of a file, its size, its time and, if it is small, its content; of a folder the same of all files
// that are not hidden.
Json state_of_source(const std::filesystem::path& source);
// The model's name as a file may be called.
std::string plain_name(const std::string& source);

}  // namespace ac
