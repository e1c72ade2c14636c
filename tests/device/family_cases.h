// Plans of every kernel family, judged in this process on whatever device is given: by unit_tests
// on the host, and by gpu_tests on a GPU, where compute-sanitizer sees the kernels so.
#pragma once

#include <set>
#include <string>

#include "build/compile.h"
#include "device/device.h"

namespace ac::test {

// How many plans: one of each family; of each kind, with every value of an op's fields; or also
// with every value that a field of the plan can have.
enum class Breadth { families, kinds, fields };

// Checks with doctest that all are admitted, and that no family or kind is missing that the device
// can run. `planned_for` is what plans must be legal for. With names in `only`, of these families.
void check_kernel_families(Device& device, const DeviceInfo& planned_for, KernelBuilder& builder,
                           Breadth breadth, const std::set<std::string>& only = {});

}  // namespace ac::test
