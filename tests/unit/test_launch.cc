// Launches as data: counts that depend on tokens, and parameters put together from them.
#include <doctest/doctest.h>

#include <cstring>

#include "program/launch.h"

using namespace ac;

TEST_CASE("a count is rounded up, multiplied and bounded") {
  CHECK(Count(7).at(100) == 7);
  CHECK(Count(3, 2).at(5) == 13);
  Count tiles(0, 4);
  tiles.per = 64, tiles.times = 3;
  CHECK(tiles.at(16) == 3);
  CHECK(tiles.at(17) == 6);
  tiles.at_most = 5;
  CHECK(tiles.at(17) == 5);
}

TEST_CASE("parameters get addresses and numbers, and nothing else changes") {
  struct Params {
    const float* x;
    int a, rows;
    long long big;
  } plain{nullptr, 42, 0, 0};
  Launch launch;
  launch.params.resize(sizeof plain);
  std::memcpy(launch.params.data(), &plain, sizeof plain);
  launch.pointers = {{offsetof(Params, x), 1, Count(0, 8)}};
  launch.numbers = {{offsetof(Params, rows), 4, Count(1, 2)}, {offsetof(Params, big), 8, -5}};
  float data[16] = {};
  const std::vector<std::byte> bytes = bind_params(launch, 3, {nullptr, data});
  Params out{};
  std::memcpy(&out, bytes.data(), sizeof out);
  CHECK(out.x == data + 6);
  CHECK(out.a == 42);
  CHECK(out.rows == 7);
  CHECK(out.big == -5);
}
