#pragma once

#include <cstdlib>

namespace ac::test {

// Whether tests take rarer variants as well (test.sh).
inline bool is_long_run() { return std::getenv("AC_TEST_LONG") != nullptr; }

}  // namespace ac::test
