// What the driver says of the GPUs in this machine.
#pragma once

#include <string>
#include <vector>

#include "device/device_info.h"
#include "device/devices.h"

namespace ac::cuda {

struct Driver;

CudaDevice describe_gpu(const Driver& driver, int index);

// What is known of the nearest architecture, with this GPU's own limits. Bandwidth and rates are
// those of the known card in the proportion of clocks, units and bus width.
DeviceInfo limits_of_gpu(const Driver& driver, int index);

// The part of limits_of_gpu that asks no driver.
struct GpuLimits {
  std::string name;
  int sm = 0;  // 90
  int multiprocessors = 0, registers = 0, threads = 0, blocks = 0;
  int shared_bytes = 0, max_shared_bytes = 0;
  std::int64_t l2_bytes = 0;
  // 0 where the driver does not tell.
  double clock = 0;  // of a multiprocessor, hertz
  double memory_bytes_per_second = 0;
};
DeviceInfo device_info_with(const GpuLimits& gpu);

}  // namespace ac::cuda
