// Plans of every kernel family, judged in this process on whatever device is given: by unit_tests
// on the host, and by gpu_tests on a GPU, where compute-sanitizer sees the kernels so.
#pragma once

#include <set>
#include <string>

#include "build/compile.h"
#include "device/device.h"
#include "tests/device/family_trials.h"

namespace ac::test {

// Checks with doctest that all are admitted, and that no family or kind is missing that the device
// can run. `planned_for` is what plans must be legal for. With names in `only`, of these families.
void check_kernel_families(Device& device, const DeviceInfo& planned_for, KernelBuilder& builder,
                           Breadth breadth, const std::set<std::string>& only = {});

}  // namespace ac::test
