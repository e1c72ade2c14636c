// What GPU is in this machine, asked without starting CUDA in this process.
#pragma once

#include <optional>
#include <string>

#include "device/device_info.h"

namespace ac {

// The first GPU; an error (job_failed) says why there is none.
DeviceInfo gpu_info();
// The same, where it is no fault that there is none.
std::optional<DeviceInfo> find_gpu();

}  // namespace ac
