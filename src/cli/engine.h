// What commands share that run or measure packages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runtime/opening.h"

namespace ac {

// --checkpoint, of commands that read a package's checkpoint.
void add_checkpoint_option(CLI::App& command, std::string& checkpoint);

void warn_on_stderr(const std::string& warning);

// The PACKAGE argument's engine and the options that shape it. The loading's progress is on stderr,
// unless it is short.
struct EngineArguments : EngineOpening {
  bool quiet = false;  // no progress on stderr

  void add_to(CLI::App& command);
  std::vector<std::string> command() const;  // the same, for another process

 private:
  void listen(EngineOptions& options) const override;
};

}  // namespace ac
