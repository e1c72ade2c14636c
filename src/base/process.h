// Running another program, without a shell.
#pragma once

#include <string>
#include <vector>

namespace ac {

struct ProcessResult {
  int exit_code = 0;   // when it was not killed
  int signal = 0;      // that killed it, or 0
  std::string output;  // of ChildOutput::captured
  bool ok() const { return exit_code == 0 && signal == 0; }
};

// errors_only: what it writes on stderr reaches ours, and what it writes on stdout is discarded.
enum class ChildOutput { to_stderr, errors_only, discarded, captured };

// Waits for the program. What it writes on stdout never reaches ours, which may be machine-read.
// `arguments[0]` is a path, or a name that is looked up in PATH. Throws Fault::job_failed when the
// program cannot be started at all.
ProcessResult run_process(const std::vector<std::string>& arguments, ChildOutput output);

}  // namespace ac
