// Random values on a device, by its own kernels: gigabytes take a moment.
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "base/dtype.h"
#include "build/compile.h"
#include "device/device.h"
#include "kernels/random_plan.h"

namespace ac {

// To be built for the device and given to RandomValues.
KernelSource random_source();

class RandomValues {
 public:
  RandomValues(Device& device, const std::filesystem::path& kernels);

  // Uniform in offset +- scale; the same for the same seed, on any device. Each is `every` elements
  // behind the one before it.
  void fill(void* to, DType dtype, std::int64_t count, std::uint64_t seed, double offset,
            double scale, std::int64_t every = 1) const;
  // Bytes of two codes of 4 bits each, which are 8 on average.
  void fill_codes(void* to, std::int64_t bytes, std::uint64_t seed) const;

 private:
  void launch(const Device::Kernel& kernel, const kernels::RandomParams& params) const;

  Device& device_;
  std::map<DType, std::unique_ptr<Device::Kernel>> kernels_;
  std::unique_ptr<Device::Kernel> codes_;
};

}  // namespace ac
