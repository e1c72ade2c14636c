#include "runtime/random_values.h"

#include <doctest/doctest.h>

#include <cmath>

#include "base/environment.h"
#include "runtime/weight_source.h"
#include "tests/unit/expect_error.h"

namespace ac::test {
namespace {

struct Random {
  std::unique_ptr<Device> device = open_host_device();
  RandomValues values{*device, built()};

  static std::filesystem::path built() {
    const BuildResult result =
        KernelBuilder(builder_options(read_environment())).build(random_source(), {});
    if (const auto* failure = std::get_if<CompileFailure>(&result)) FAIL(failure->log);
    return std::get<Artifact>(result).file;
  }
  std::vector<double> read(const Device::Memory& memory, DType dtype) const {
    std::vector<std::byte> bytes(memory.bytes());
    device->download(bytes, memory.address());
    std::vector<double> values;
    for (std::size_t at = 0; at < bytes.size(); at += bytes_of(dtype))
      values.push_back(load_element(dtype, bytes.data() + at));
    return values;
  }
  std::vector<double> weights(const Buffer& buffer, std::uint64_t seed) const {
    std::size_t count = 1;
    for (const std::int64_t size : buffer.shape) count *= static_cast<std::size_t>(size);
    const auto memory = device->allocate(count * bytes_of(buffer.dtype));
    random_weights(values, seed)->load(buffer, memory->address());
    device->synchronize();
    return read(*memory, buffer.dtype);
  }
};

TEST_CASE("random values: in their range, evenly, and no more than asked for") {
  const Random random;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const std::size_t count = 3001;
    const auto memory = random.device->allocate((count + 1) * bytes_of(dtype));
    random.values.fill(memory->address(), dtype, count, 9, 2, 0.5);
    random.device->synchronize();
    std::vector<double> values = random.read(*memory, dtype);
    CHECK(std::isnan(values.back()));  // as it was
    values.pop_back();
    double sum = 0, squares = 0;
    for (const double value : values) {
      REQUIRE(value >= 1.5);
      REQUIRE(value <= 2.5);
      sum += value - 2, squares += (value - 2) * (value - 2);
    }
    CHECK(std::abs(sum / count) < 0.02);
    CHECK(std::abs(squares / count - 0.25 / 3) < 0.005);
  }
  CHECK(error_of(Fault::job_failed, [&] {
          random.values.fill(nullptr, DType::i64, 1, 0, 0, 1);
        }).find("i64") != std::string::npos);
}

TEST_CASE("random weights: by name and seed, about as large as trained ones") {
  const Random random;
  const Buffer matrix{.dtype = DType::f32, .key = "a.weight", .shape = {20, 300}};
  const std::vector<double> values = random.weights(matrix, 1);
  CHECK(values == random.weights(matrix, 1));
  CHECK(values != random.weights(matrix, 2));
  Buffer other = matrix;
  other.key = "b.weight";
  CHECK(values != random.weights(other, 1));
  for (const double value : values) REQUIRE(std::abs(value) <= 0.1001);

  for (const double value :
       random.weights({.dtype = DType::f16, .key = "norm.weight", .shape = {99}}, 1))
    REQUIRE(std::abs(value - 1) <= 0.101);
  for (const double value :
       random.weights({.dtype = DType::f16, .key = "q.bias", .shape = {99}}, 1))
    REQUIRE(std::abs(value) <= 0.0201);
}

TEST_CASE("random weights: of a format, about 0 on average, and as large as plain ones") {
  const Random random;
  const std::vector<std::int64_t> shape = {64, 4096};
  for (const std::string name :
       {"e4m3_row", "u8_row", "u4_g128", "u4_g32_f16", "u4_g128_zeros", "u8_g128_zeros",
        "e2m1_g16_f8e4m3_global", "e2m1_g32_f8e8m0", "u5_g32_f16", "u4_g32_f16_minima",
        "u5_g32_f16_minima", "u4_g16_i8_in256", "u4_g32_i8_in256_minima", "u5_g32_i8_in256_minima",
        "u6_g16_i8_in256"}) {
    CAPTURE(name);
    const std::optional<WeightFormat> format = find_format(name);
    REQUIRE(format);
    std::vector<std::vector<double>> parts;
    for (const WeightPart& part : format->parts)
      parts.push_back(random.weights(
          {.role = Buffer::Role::weight,
           .dtype = part.dtype,
           .key = fmt::format("a.{}", key_of(part.kind)),
           .shape = part.shape(shape),
           .in_file = {.format = format->format, .part = static_cast<int>(parts.size())}},
          1));
    std::vector<double> elements(64 * 4096);
    format->read(
        shape, 0, 64 * 4096,
        [&](std::size_t part, std::int64_t first, std::int64_t count, double* out) {
          std::copy_n(parts[part].begin() + first, count, out);
        },
        elements.data());
    double sum = 0, squares = 0;
    for (const double element : elements) sum += element, squares += element * element;
    const double mean = sum / 64 / 4096, size = std::sqrt(squares / 64 / 4096);
    CHECK(std::abs(mean) < 0.06 * size);
    CHECK(size * 64 > 0.6);
    CHECK(size * 64 < 2);
  }
}

}  // namespace
}  // namespace ac::test
