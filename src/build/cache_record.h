// Records of caches on disk: JSON that says what it is about, under a checksum. What is damaged, or
// lies in another's place, is not taken for what was written.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"

namespace ac {

// The text of a file. `content` is an object.
std::string record_text(const std::string& key, Json content);

// The object, of the record of this key. Anything else is an error (bad_input) that names the file.
Json read_record(const std::filesystem::path& path, const std::string& key);

}  // namespace ac
