#include "lab/random_pool.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "base/elements.h"

namespace ac {
namespace {

constexpr std::size_t kPool = std::size_t{1} << 20;  // elements
constexpr std::size_t kPart = std::size_t{1} << 12;  // drawn when one of them is wanted
constexpr std::size_t kStride = 10007 * 16;          // between copies: where pieces are aligned

double drawn(std::size_t at) {
  thread_local std::array<std::vector<double>, kPool / kPart> parts;
  std::vector<double>& part = parts[at / kPart];
  if (part.empty()) {
    std::mt19937_64 random(20261121 + at / kPart);
    std::normal_distribution<double> normal;
    part.resize(kPart);
    for (double& value : part) value = normal(random);
  }
  return part[at % kPart];
}

}  // namespace

void RandomPool::fill(Device& device, Memories copies, DType dtype, double scale) {
  const std::size_t size = bytes_of(dtype), total = copies[0]->bytes() / size;
  if (total == 0) return;
  const std::size_t count = std::min(total, kPool);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * drawn((next_ + i) % kPool);
  if (dtype == DType::u8)
    for (double& value : values) value = std::clamp(128 + value, 0.0, 255.0);
  if (dtype == DType::f8e8m0)
    for (double& value : values) value = std::fabs(value);
  next_ += count + kStride;
  std::vector<std::byte> bytes(count * size);
  store_elements(dtype, values, bytes.data());
  // Uploaded once: what repeats it is copied within the device.
  const std::unique_ptr<Device::Memory> image = device.allocate(bytes.size());
  device.upload(image->address(), bytes);
  std::size_t start = 0;
  for (const std::unique_ptr<Device::Memory>& copy : copies) {
    auto* const to = static_cast<std::byte*>(copy->address());
    const auto* const from = static_cast<const std::byte*>(image->address());
    for (std::size_t done = 0, at = start; done < total; at = 0) {
      const std::size_t piece = std::min(count - at, total - done);
      device.copy(to + done * size, from + at * size, piece * size);
      done += piece;
    }
    start = (start + kStride) % count;
  }
  device.synchronize();
}

}  // namespace ac
