// The GPU of this machine, for commands that compile.
#pragma once

#include <string>

#include "device/device_info.h"

namespace ac {

struct Gpu {
  DeviceInfo info;
  std::string name, driver;
};

// Of the first GPU. Asked of a child process: one that has started CUDA cannot fork any more. None
// is an error (job_failed) that says why.
Gpu find_gpu();

}  // namespace ac
