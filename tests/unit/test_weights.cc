// Weights on their way from a checkpoint to a device: in pieces, by several threads, converted.
#include "runtime/weight_source.h"

#include <doctest/doctest.h>

#include "base/temporary_folder.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/safetensors_writer.h"

namespace ac::test {
namespace {

// More than one piece, and no multiple of any.
constexpr std::int64_t kLarge = 9'000'001, kSmall = 300'007, kTiny = 7;

std::uint16_t half_at(std::size_t i) { return static_cast<std::uint16_t>(0x3c00 + i % 1021); }
float float_at(std::size_t i) { return static_cast<float>(i * 7919 % 16'777'213); }

struct Loading {
  Loading() {
    program.stores["checkpoint"] = "model.safetensors";
    std::vector<float> large(kLarge), tiny(kTiny);
    std::vector<std::uint16_t> small(kSmall);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = float_at(i);
    for (std::size_t i = 0; i < small.size(); ++i) small[i] = half_at(i);
    for (std::size_t i = 0; i < tiny.size(); ++i) tiny[i] = float_at(i);
    write_safetensors(folder.path() / "model.safetensors",
                      {{"large", DType::f32, {kLarge}, bytes_of_values(large)},
                       {"small", DType::f16, {kSmall}, bytes_of_values(small)},
                       {"tiny", DType::f32, {kTiny}, bytes_of_values(tiny)}});
    write_digests(folder.path());
    source = checkpoint_weights(*device, PackageStores(program, PackageFiles(folder.path())));
  }

  template <class T>
  std::vector<T> load(const char* key, DType dtype, std::int64_t count) {
    const Buffer buffer{.role = Buffer::Role::weight,
                        .name = key,
                        .dtype = dtype,
                        .bytes = count * static_cast<std::int64_t>(sizeof(T)),
                        .store = "checkpoint",
                        .key = key,
                        .shape = {count}};
    std::vector<T> values(static_cast<std::size_t>(count));
    source->load(buffer, values.data());  // the host device's memory is memory
    device->synchronize();
    return values;
  }

  TemporaryFolder folder;
  Program program;
  std::unique_ptr<Device> device = open_host_device();
  std::unique_ptr<WeightSource> source;
};

TEST_CASE("weights: all of a tensor arrives, whatever its size") {
  Loading loading;
  for (int round = 0; round < 2; ++round) {
    const auto large = loading.load<float>("large", DType::f32, kLarge);
    const auto small = loading.load<std::uint16_t>("small", DType::f16, kSmall);
    const auto tiny = loading.load<float>("tiny", DType::f32, kTiny);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < large.size(); ++i) wrong += large[i] != float_at(i);
    for (std::size_t i = 0; i < small.size(); ++i) wrong += small[i] != half_at(i);
    for (std::size_t i = 0; i < tiny.size(); ++i) wrong += tiny[i] != float_at(i);
    CHECK(wrong == 0);
  }
}

TEST_CASE("weights: converted element by element") {
  Loading loading;
  const auto small = loading.load<float>("small", DType::f32, kSmall);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < small.size(); ++i)
    wrong += small[i] != 1 + static_cast<float>(i % 1021) / 1024;
  CHECK(wrong == 0);
}

TEST_CASE("weights: what is not there, or of another shape, is told") {
  Loading loading;
  CHECK_BAD_INPUT(loading.load<float>("absent", DType::f32, 3), "absent");
  CHECK_BAD_INPUT(loading.load<float>("tiny", DType::f32, 8), "tiny", "[8]", "[7]");
}

}  // namespace
}  // namespace ac::test
