// Lines of progress: none is wider than the terminal.
#include "base/progress.h"

#include <doctest/doctest.h>

using namespace ac;

TEST_CASE("progress: a line is cut to what fits in one row") {
  CHECK(fitted("12345", 6) == "12345");
  CHECK(fitted("123456", 6) == "12...");
  CHECK(fitted("123456", 4) == "");
  CHECK(fitted("", 0) == "");
  // No half of a letter that takes several bytes.
  CHECK(fitted("a\u00e9\u00e9\u00e9\u00e9", 7) == "a\u00e9...");
  CHECK(fitted("a\u00e9\u00e9\u00e9\u00e9", 8) == "a\u00e9...");
}
