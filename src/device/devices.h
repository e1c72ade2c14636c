// What this machine can compile for and run on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device_info.h"

namespace ac {

struct CudaDevice {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0, l2_bytes = 0;
  int max_shared_bytes = 0;  // a block
};

struct Devices {
  std::string cpu;
  unsigned cpu_threads = 0;
  std::vector<CudaDevice> cuda;
  std::string driver;       // "13.0"; empty without one
  std::string why_no_cuda;  // empty when `cuda` is not
};

Devices find_devices();

// A line for people if no constants of the cost model were fitted to this GPU; else empty.
std::string uncalibrated_note(const DeviceInfo& device);

// Of cuBLASLt, such as "13.1.0". An error (job_failed) where there is none that can be used.
std::string cublaslt_version();

}  // namespace ac
