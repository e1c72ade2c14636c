// The digests of a package's files, which plan.json holds so that a change to one of them is seen.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace ac {

// Of all files but plan.json itself and the weights: {"wrappers.cc": sha256, ...}.
Json digests_of(const std::filesystem::path& package);

// What is not as `digests` has it, for people: a file that is missing or was changed. What a build
// adds to the folder is no fault.
std::vector<std::string> changed_files(const std::filesystem::path& package, const Json& digests,
                                       const std::string& origin);

}  // namespace ac
