#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace ac {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "agentcompile: internal error at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace ac
