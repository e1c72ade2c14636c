// What packages are for: whether one runs here, and folders that hold one for each of several
// targets, as `compile --target sm_80,sm_90` makes.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace ac {

// Whether what is built for the target ("sm_90", "host") runs on a GPU of this generation (90), or
// on the CPU (0). Kernels run on GPUs of their major version that are no older; from sm_90 on they
// are built for one generation alone (sm_90a).
bool runs_on(const std::string& target, int sm);

// The packages in a folder that is none itself, by target; none if it is a package.
using Packages = std::map<std::string, std::filesystem::path>;
Packages packages_in(const std::filesystem::path& folder);

// Of their targets the latest that runs there; empty: none does.
std::string target_for(int sm, const Packages& packages);

}  // namespace ac
