#include <doctest/doctest.h>

#include "base/error.h"
#include "ir/dim.h"
#include "tests/unit/symbols.h"

using namespace ac;
using namespace ac::test;

TEST_CASE("equal sizes have one form") {
  CHECK(S * 2 + 1 - S == S + 1);
  CHECK(S - S == Dim(0));
  CHECK((P + T) * (P - T) == P * P - T * T);
  CHECK((S * 2 + 1).str() == "2*S + 1");
  CHECK((Dim(3) - S * S).str() == "-S*S + 3");
}

TEST_CASE("division is exact or nothing") {
  CHECK((S * 6).divided_by(S) == Dim(6));
  CHECK((S * S - T * T).divided_by(S + T) == S - T);
  CHECK(!S.divided_by(2));
  CHECK(!S.divided_by(0));
  CHECK(!Dim(1).divided_by(S));
}

TEST_CASE("sizes print and parse back") {
  for (const Dim& dim : {Dim(0), Dim(7), Dim(-7), S, S * 2 + 1, P + T, Dim(3) - S * S * 5})
    CHECK(Dim::parse(dim.str()) == dim);
  CHECK(!Dim::parse(""));
  CHECK(!Dim::parse("S +"));
  CHECK(!Dim::parse("2S"));
  CHECK(!Dim::parse("x"));
  CHECK(!Dim::parse("99999999999999999999"));
}

TEST_CASE("substitution and evaluation") {
  CHECK((S * S + 1).substitute(Symbol::S, P + 1) == P * P + P * 2 + 2);
  CHECK((P + T).evaluate({.T = 3, .P = 4}) == 7);
}

TEST_CASE("overflow is an error") {
  const Dim huge(INT64_MAX);
  CHECK_THROWS_AS(huge * 2, Error);
  CHECK_THROWS_AS(huge + 1, Error);
  CHECK_THROWS_AS((S * INT64_MAX).evaluate({.S = 2}), Error);
}
