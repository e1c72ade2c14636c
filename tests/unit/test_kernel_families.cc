// What gpu_tests does with plans of every kernel family, on the host device.
#include <doctest/doctest.h>

#include "small_compilation.h"
#include "tests/device/family_cases.h"

using namespace ac;
using namespace ac::test;

TEST_CASE("a plan of every kernel family is admitted in this process") {
  FreshBuilder fresh;
  const auto device = open_host_device();
  DeviceInfo info = device->info();
  info.warpgroups = true;  // it gains nothing by them, but has them
  check_kernel_families(*device, info, fresh.builder, Breadth::families);
}
