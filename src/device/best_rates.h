// What a device reaches at best: the figures that shares of a limit refer to.
#pragma once

#include <filesystem>

#include "build/compile.h"
#include "device/device.h"

namespace ac {

struct Measured {
  double read = 0;          // streaming reads from memory, bytes a second
  double copy = 0;          // from memory to memory, bytes read and written a second
  double tensor_flops = 0;  // f16 products summed in float32 (mma.sync), a second
};

struct MeasureSizes {
  std::size_t bytes = std::size_t{4} << 30;  // read; half of them copied to the other half
  int rounds = 4096;                         // of tensor arithmetic
  int repeats = 8;
};

// To be built for the device and given to measure().
KernelSource measure_source();
Measured measure(Device& device, const std::filesystem::path& kernels,
                 const MeasureSizes& sizes = {});

}  // namespace ac
