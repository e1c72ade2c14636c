// Stage 10: the package. Written beside its final name and renamed into place whole, so that an
// interrupted compilation leaves no package, or the old one.
#pragma once

#include <filesystem>

#include "compile/compile.h"

namespace ac {

// An error if nothing may be written there: something else than a package is never replaced, and a
// package only if `replace` is set.
void check_output(const std::filesystem::path& to, bool replace);

// Over what is there only if `replace` is set; a folder that is no package is never replaced.
void write_package(const Compiled& compiled, const Model& model,
                   const std::filesystem::path& kernel_headers, const std::filesystem::path& to,
                   bool replace);

// plan.json: how the compiler came to its choices.
Json plan_json(const Compiled& compiled);

}  // namespace ac
