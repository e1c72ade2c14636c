#include "base/warning.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>

#include "base/print_stderr.h"

namespace ac {

void warn_of(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (!said.insert(text).second) return;
  // In place of a line of progress, which comes again.
  print_stderr("{}warning: {}\n", isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", text);
}

}  // namespace ac
