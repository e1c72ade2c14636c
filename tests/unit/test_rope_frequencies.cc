#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/json.h"
#include "capture/config.h"
#include "capture/rope_frequencies.h"
#include "tests/tools/source_folder.h"

using namespace ac;

namespace {

// How many float32 values lie between two positive ones.
std::int64_t ulps(float a, float b) {
  return std::abs(std::int64_t{std::bit_cast<std::int32_t>(a)} - std::bit_cast<std::int32_t>(b));
}

}  // namespace

// PyTorch's vectorised power is itself up to an ulp off and differs between processors, ours is
// not; what is computed from the power doubles or triples that. Most values must be the very same.
TEST_CASE("rope frequencies are those that transformers computes") {
  const Json cases = read_json(test_data() / "rope_cases.json");
  CHECK(cases.size() > 30);
  int all = 0, same = 0, near = 0;
  for (const Json& recorded : cases) {
    CAPTURE(recorded["name"].get<std::string>());
    const DecoderConfig config = parse_config(recorded["config"], "config");
    const RopeFrequencies rope =
        rope_frequencies(config.ropes.at(0), config.layers.at(0).attention.head_dim);
    const Json& expected = recorded["inv_freq"];
    REQUIRE(rope.inverse.size() == expected.size());
    CHECK(std::abs(rope.scale - recorded["scale"].get<double>()) < 1e-15);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const std::int64_t distance = ulps(rope.inverse[i], expected[i].get<float>());
      CHECK(distance <= 3);
      all += 1;
      same += distance == 0;
      near += distance <= 1;
    }
  }
  CAPTURE(all);
  CAPTURE(same);
  CAPTURE(near);
  CHECK(same > 0.9 * all);
  CHECK(near > 0.99 * all);
}
