// What the outcome of an attempt depends on, as text for its key.
#pragma once

#include <string>
#include <vector>

#include "build/compile.h"
#include "build/headers.h"
#include "device/device_info.h"

namespace ac::tuning {

// Of the sources and of all headers that they reach.
std::string kernel_hash(const std::vector<KernelSource>& sources, Headers& headers);

// A card of the same name with other limits is another device.
std::string fingerprint(const DeviceInfo& device, const std::string& name);

}  // namespace ac::tuning
