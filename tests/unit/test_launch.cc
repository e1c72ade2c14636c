// Launches as data: counts that depend on tokens, and parameters put together from them.
#include <doctest/doctest.h>

#include <cstring>

#include "device/host.h"
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
  const std::vector<std::byte> bytes = bind_params(launch, 3, {nullptr, data}, encode_map_on_host);
  Params out{};
  std::memcpy(&out, bytes.data(), sizeof out);
  CHECK(out.x == data + 6);
  CHECK(out.a == 42);
  CHECK(out.rows == 7);
  CHECK(out.big == -5);
}

TEST_CASE("parameters get maps, of as many rows as there are tokens") {
  struct Params {
    int before[16];
    kernels::TensorMap map;
    int behind[16];
  } plain{};
  plain.before[15] = 7, plain.behind[0] = 8;
  Launch launch;
  launch.params.resize(sizeof plain);
  std::memcpy(launch.params.data(), &plain, sizeof plain);
  launch.maps = {{64, 1, Count(0, 16), Count(1, 2), 40, 48, 32, DType::bf16}};
  CHECK(why_impossible(launch.maps[0], launch, 3) == nullptr);
  CHECK(bytes_of(launch.maps[0], 3) == (6 * 48 + 40) * 2);
  alignas(16) std::byte data[64] = {};
  const std::vector<std::byte> bytes = bind_params(launch, 3, {nullptr, data}, encode_map_on_host);
  Params out{};
  REQUIRE(bytes.size() == sizeof out);
  std::memcpy(&out, bytes.data(), sizeof out);
  CHECK(out.before[15] == 7);
  CHECK(out.behind[0] == 8);
  kernels::MatrixView view{};
  std::memcpy(&view, out.map.bytes, sizeof view);
  CHECK(view.base == data + 48);
  CHECK(view.rows == 7);
  CHECK(view.columns == 40);
  CHECK(view.pitch == 48);
  CHECK(view.box_rows == 32);
  CHECK(view.box_panels == 1);
  CHECK(view.bf16 == 1);
  launch.maps[0].dtype = DType::f16;
  // Whoever encodes sees the device's address, and what it makes of it is what the kernel gets.
  const auto marked = bind_params(launch, 1, {nullptr, data},
                                  [&](const kernels::MatrixView& matrix, kernels::TensorMap& map) {
                                    CHECK(matrix.base == data + 16);
                                    CHECK(matrix.rows == 3);
                                    CHECK(matrix.bf16 == 0);
                                    map.bytes[0] = 1, map.bytes[127] = 2;
                                  });
  CHECK(marked[64] == std::byte{1});
  CHECK(marked[65] == std::byte{0});
  CHECK(marked[191] == std::byte{2});
}
