// What kernels are timed on: random numbers of the right scale in all of every copy.
#include "lab/random_pool.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/elements.h"

using namespace ac;

namespace {

std::vector<double> numbers(Device& device, const Device::Memory& memory, DType dtype) {
  std::vector<std::byte> bytes(memory.bytes());
  device.download(bytes, memory.address());
  std::vector<double> values(bytes.size() / bytes_of(dtype));
  load_elements(dtype, bytes.data(), values);
  return values;
}

double deviation(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("random pool: every copy is random to its end, and of the scale that is asked for") {
  const std::unique_ptr<Device> device = open_host_device();
  RandomPool pool;
  // Of fewer elements than the pool, about as many, and so many that they repeat.
  for (const std::size_t count :
       {std::size_t{1000}, (std::size_t{1} << 20) - 3, (std::size_t{5} << 19) + 7})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      CAPTURE(count);
      std::vector<std::unique_ptr<Device::Memory>> copies;
      for (int i = 0; i < 3; ++i) copies.push_back(device->allocate(count * bytes_of(dtype)));
      pool.fill(*device, copies, dtype, 0.03);
      std::vector<std::vector<double>> values;
      for (const auto& copy : copies) {
        values.push_back(numbers(*device, *copy, dtype));
        REQUIRE(values.back().size() == count);
        const std::vector<double>& all = values.back();
        // The first and the last thousand alone too: nothing is left out.
        for (const std::vector<double>& some :
             {all, std::vector<double>(all.begin(), all.begin() + 1000),
              std::vector<double>(all.end() - 1000, all.end())})
          CHECK(deviation(some) == doctest::Approx(0.03).epsilon(0.1));
        CHECK(std::set<double>(all.end() - 1000, all.end()).size() > 300);
      }
      CHECK(values[0] != values[1]);
      CHECK(values[1] != values[2]);
      CHECK(values[0] != values[2]);
    }
}

TEST_CASE("random pool: two buffers do not hold the same numbers") {
  const std::unique_ptr<Device> device = open_host_device();
  RandomPool pool;
  std::vector<std::unique_ptr<Device::Memory>> one, other, none;
  one.push_back(device->allocate(4000)), other.push_back(device->allocate(4000));
  none.push_back(device->allocate(1));  // less than an element
  pool.fill(*device, one, DType::f32, 1);
  pool.fill(*device, other, DType::f32, 1);
  pool.fill(*device, none, DType::f32, 1);
  const std::vector<double> a = numbers(*device, *one[0], DType::f32),
                            b = numbers(*device, *other[0], DType::f32);
  double product = 0;
  for (std::size_t i = 0; i < a.size(); ++i) product += a[i] * b[i] / static_cast<double>(a.size());
  CHECK(std::fabs(product) < 0.15);  // as of what is independent
}
