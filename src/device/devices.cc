#include "device/devices.h"

#include <dlfcn.h>

#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>

namespace ac {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

// The few driver functions that describe a device. The driver is loaded at run time, so that one
// program starts on machines with and without it.
struct Driver {
  explicit Driver(void* library) : library_(library) {}
  ~Driver() { dlclose(library_); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  template <class... Args>
  int call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    return function ? function(args...) : -1;
  }

 private:
  void* library_;
};

// CUdevice_attribute values, fixed by the driver's ABI.
enum Attribute {
  multiprocessor_count = 16,
  l2_cache_size = 38,
  compute_major = 75,
  compute_minor = 76
};

void find_cuda(Devices& devices) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    devices.why_no_cuda = "no NVIDIA driver (libcuda.so.1 was not found)";
    return;
  }
  const Driver driver(library);
  if (const int status = driver.call("cuInit", 0u); status != 0) {
    devices.why_no_cuda = fmt::format("the NVIDIA driver does not start (cuInit gave {})", status);
    return;
  }
  int version = 0, count = 0;
  driver.call("cuDriverGetVersion", &version);
  devices.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  driver.call("cuDeviceGetCount", &count);
  for (int index = 0; index < count; ++index) {
    int handle = 0;
    if (driver.call("cuDeviceGet", &handle, index) != 0) continue;
    CudaDevice device;
    char name[256] = {};
    std::size_t memory = 0;
    const auto attribute = [&](Attribute which) {
      int value = 0;
      driver.call("cuDeviceGetAttribute", &value, static_cast<int>(which), handle);
      return value;
    };
    driver.call("cuDeviceGetName", &name[0], static_cast<int>(sizeof name), handle);
    driver.call("cuDeviceTotalMem_v2", &memory, handle);
    device.name = name;
    device.memory_bytes = memory;
    device.compute_major = attribute(compute_major);
    device.compute_minor = attribute(compute_minor);
    device.multiprocessors = attribute(multiprocessor_count);
    device.l2_bytes = static_cast<std::uint64_t>(attribute(l2_cache_size));
    devices.cuda.push_back(std::move(device));
  }
  if (devices.cuda.empty()) devices.why_no_cuda = "the NVIDIA driver sees no GPU";
}

}  // namespace

Devices find_devices() {
  Devices devices;
  devices.cpu = cpu_name();
  devices.cpu_threads = std::thread::hardware_concurrency();
  devices.build_toolkit = AC_CUDA_TOOLKIT;
  find_cuda(devices);
  return devices;
}

}  // namespace ac
