// Random values on a device, by its own kernels: gigabytes take a moment.
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "base/dtype.h"
#include "build/compile.h"
#include "device/device.h"

namespace ac {

// To be built for the device and given to RandomValues.
KernelSource random_source();

class RandomValues {
 public:
  RandomValues(Device& device, const std::filesystem::path& kernels);

  // Uniform in offset +- scale; the same for the same seed, on any device.
  void fill(void* to, DType dtype, std::int64_t count, std::uint64_t seed, double offset,
            double scale) const;

 private:
  Device& device_;
  std::map<DType, std::unique_ptr<Device::Kernel>> kernels_;
};

}  // namespace ac
