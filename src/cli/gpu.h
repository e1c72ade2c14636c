// The GPU of this machine, for commands that compile: asked without starting CUDA in this process.
#pragma once

#include <optional>
#include <string>

#include "device/device_info.h"

namespace ac {

struct Gpu {
  DeviceInfo info;
  std::string name, driver;
};

// The first one; an error (job_failed) says why there is none.
Gpu the_gpu();
// The same, where it is no fault that there is none.
std::optional<Gpu> find_gpu();

}  // namespace ac
