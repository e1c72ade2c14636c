#include "device/cuda/probe.h"

#include <algorithm>

#include "base/error.h"
#include "device/cuda/driver.h"

namespace ac::cuda {
namespace {

void check(const Driver& driver, Result result, int index) {
  if (!result.ok()) job_failed("asking about GPU {}: {}", index, driver.describe(result));
}

int handle_of(const Driver& driver, int index) {
  int handle = 0;
  check(driver, driver.device(&handle, index), index);
  return handle;
}

int ask(const Driver& driver, int index, DeviceAttribute attribute) {
  int value = 0;
  check(driver, driver.device_attribute(&value, attribute, handle_of(driver, index)), index);
  return value;
}

std::string name_of(const Driver& driver, int index) {
  char name[256] = {};
  check(driver, driver.device_name(name, sizeof name - 1, handle_of(driver, index)), index);
  return name;
}

// The known card with the nearest architecture that is not newer.
const DeviceInfo& nearest_known(const GpuLimits& gpu) {
  const DeviceInfo* nearest = nullptr;
  for (const DeviceInfo& known : known_devices())
    if (known.sm > 0 && known.sm <= gpu.sm && (nearest == nullptr || known.sm > nearest->sm))
      nearest = &known;
  if (nearest == nullptr)
    job_failed("{}: its architecture sm_{} is too old; sm_80 or later is needed", gpu.name, gpu.sm);
  return *nearest;
}

// Of float32 arithmetic in a clock.
int lanes(int sm) { return sm == 80 ? 64 : 128; }

}  // namespace

CudaDevice describe_gpu(const Driver& driver, int index) {
  CudaDevice device;
  std::size_t memory = 0;
  check(driver, driver.device_memory(&memory, handle_of(driver, index)), index);
  device.name = name_of(driver, index);
  device.memory_bytes = memory;
  device.compute_major = ask(driver, index, compute_major);
  device.compute_minor = ask(driver, index, compute_minor);
  device.multiprocessors = ask(driver, index, multiprocessors);
  device.l2_bytes = static_cast<std::uint64_t>(ask(driver, index, l2_bytes));
  device.max_shared_bytes = ask(driver, index, shared_per_block);
  return device;
}

DeviceInfo device_info_with(const GpuLimits& gpu) {
  const DeviceInfo& known = nearest_known(gpu);
  DeviceInfo info = known;
  info.target = fmt::format("sm_{}", gpu.sm), info.name = gpu.name, info.sm = gpu.sm;
  if (gpu.sm != known.sm) info.calibration = nullptr;
  info.multiprocessors = gpu.multiprocessors, info.registers = gpu.registers;
  info.threads = gpu.threads, info.blocks = gpu.blocks;
  info.shared_bytes = gpu.shared_bytes, info.max_shared_bytes = gpu.max_shared_bytes;
  info.l2_bytes = gpu.l2_bytes;
  // Streaming reads reach about this share of what clock and bus width promise.
  if (gpu.memory_bytes_per_second > 0) info.bandwidth = 0.92 * gpu.memory_bytes_per_second;
  if (gpu.clock > 0) {
    info.flops = 2.0 * lanes(gpu.sm) * gpu.multiprocessors * gpu.clock;
    info.tensor_flops = known.tensor_flops * info.flops / known.flops;
  }
  return info;
}

DeviceInfo limits_of_gpu(const Driver& driver, int index) {
  const auto value = [&](DeviceAttribute attribute) { return ask(driver, index, attribute); };
  GpuLimits gpu;
  gpu.name = name_of(driver, index);
  gpu.sm = 10 * value(compute_major) + value(compute_minor);
  gpu.multiprocessors = value(multiprocessors);
  gpu.registers = value(registers_per_multiprocessor);
  gpu.threads = value(threads_per_multiprocessor);
  gpu.blocks = value(blocks_per_multiprocessor);
  gpu.shared_bytes = value(shared_per_multiprocessor);
  gpu.max_shared_bytes = value(shared_per_block);
  gpu.l2_bytes = value(l2_bytes);
  gpu.clock = 1e3 * value(clock_khz);
  // Two transfers a clock.
  gpu.memory_bytes_per_second = 2e3 * value(memory_clock_khz) * value(memory_bus_bits) / 8;
  return device_info_with(gpu);
}

}  // namespace ac::cuda
