#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "base/json.h"

using namespace ac;

TEST_CASE("json keeps order and values") {
  const Json value = parse_json(R"({"b": [1, -2, 2.5, "x", null, true], "a": {}})", "test");
  CHECK(value.dump() == R"({"b":[1,-2,2.5,"x",null,true],"a":{}})");
}

TEST_CASE("hostile json is an error, not a crash") {
  CHECK_THROWS_AS(parse_json(std::string(100000, '['), "deep"), Error);
  CHECK_THROWS_AS(parse_json(R"({"a": 1, "a": 2})", "duplicate"), Error);
  CHECK_THROWS_AS(parse_json(R"({"a": )", "truncated"), Error);
  CHECK_THROWS_AS(parse_json("\xff\xfe", "not UTF-8"), Error);
  CHECK_THROWS_WITH_AS(parse_json("\"\xff\"", "bytes"),
                       doctest::Contains("ill-formed UTF-8 byte; last read: '\"\\xff'"), Error);
  CHECK_THROWS_AS(parse_json("", "empty"), Error);
  CHECK_THROWS_AS(parse_json("[1, 2]", "large", {.bytes = 3}), Error);
}
