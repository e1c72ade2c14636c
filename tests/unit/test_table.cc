#include "base/table.h"

#include <doctest/doctest.h>

namespace ac {

TEST_CASE("Table: numbers to the right, words to the left, nothing behind the last") {
  Table table({"uses", "op", "why"});
  table.add({"7", "linear", ""});
  table.add({"1,024", "add", "late"});
  CHECK(table.text() ==
        " uses  op      why\n"
        "    7  linear\n"
        "1,024  add     late\n");
  CHECK(table.rows() == 2);
}

TEST_CASE("Table: empty columns are left out, and control characters drive no terminal") {
  Table table({"measured", "op", "by"});
  table.add({"", "a\x1b[2Jb\n", ""});
  CHECK(table.text() == "op\na?[2Jb?\n");
}

}  // namespace ac
