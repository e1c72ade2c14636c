// What every kind of device must do, checked through its interface alone: by unit_tests on the host
// and by gpu_tests on a GPU. Each checks with doctest.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "build/compile.h"
#include "device/device.h"

namespace ac::test {

// A device, and small kernels built for it.
struct DeviceUnderTest {
  Device& device;
  std::filesystem::path kernels;   // of device_test_source()
  std::filesystem::path measures;  // of measure_source()
  bool is_large = false;           // so that much work takes little time

  std::unique_ptr<Device::Kernel> load(const std::string& entry) const {
    return device.load(kernels, entry);
  }
  template <class Params>
  void launch(const Device::Kernel& kernel, const LaunchShape& shape, const Params& params) const {
    device.launch(kernel, shape, std::as_bytes(std::span(&params, 1)));
  }
};

KernelSource device_test_source();

// Writes a word to an address.
struct PokeParams {
  void* at;
  unsigned value;
};

void check_memory(const DeviceUnderTest& d);
void check_staging(const DeviceUnderTest& d);
void check_large_parameters(const DeviceUnderTest& d);
void check_chain(const DeviceUnderTest& d);
void check_replays(const DeviceUnderTest& d, bool at_once = false);
void check_recording_outlives_kernels(const DeviceUnderTest& d);
void check_dynamic_shared_memory(const DeviceUnderTest& d);
void check_time(const DeviceUnderTest& d);
void check_overlap(const DeviceUnderTest& d);  // of GPUs
void check_refused_launches(const DeviceUnderTest& d);
void check_refused_files(const DeviceUnderTest& d);
void check_too_much_memory(const DeviceUnderTest& d);
void check_maps(Device& device);  // of matrices
void check_measure(const DeviceUnderTest& d);
// A library's, of several types, tails and epilogues, also recorded.
void check_products(Device& device, bool is_large);

}  // namespace ac::test
