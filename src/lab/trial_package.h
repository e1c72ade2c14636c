// The implementations that a step could be made of, one after the other in one program, as a
// package that an engine takes: whoever times steps chooses which launches run.
#pragma once

#include <vector>

#include "generate/assemble.h"
#include "lab/lab.h"

namespace ac {

// Makes the folder one that an engine takes: the program, with kernels that were built.
void write_runnable(const std::filesystem::path& folder, const Program& program,
                    const std::vector<std::byte>& constants, const Lab& lab);

class TrialPackage {
 public:
  // For steps of so many tokens, in an order in which they could run. Kernels must have been built.
  TrialPackage(const StepGraph& step, const Program& program, std::int64_t tokens,
               const std::vector<Implemented>& parts, const Lab& lab);

  const std::filesystem::path& path() const { return folder_.path(); }
  // The launches of each part.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  TemporaryFolder folder_;
  std::vector<Span> spans_;
};

}  // namespace ac
