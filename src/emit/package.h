// Stage 10: the package. Written beside its final name and renamed into place whole, so that an
// interrupted compilation leaves no package, or the old one.
#pragma once

#include <filesystem>

#include "compile/compile.h"
#include "emit/draft.h"

namespace ac {

// An error if nothing may be written there: something else than a package is never replaced, and a
// package only if `replace` is set.
void check_output(const std::filesystem::path& to, bool replace);

// The folder that a package is written into, before the work that it is for: where it cannot be
// made, that is an error at once. check_output() is part of it.
class PackageDraft {
 public:
  PackageDraft(const std::filesystem::path& to, bool replace);
  // Publishes it, over what is there only if `replace` is set.
  void write(const Compiled& compiled, const Model& model,
             const std::filesystem::path& kernel_headers);

 private:
  const bool replace_;
  Draft draft_;
};

// plan.json: how the compiler came to its choices.
Json plan_json(const Compiled& compiled);

}  // namespace ac
