#include "device/devices.h"

#include <fstream>
#include <thread>

#include "base/error.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/driver.h"
#include "device/cuda/probe.h"

namespace ac {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

void find_cuda(Devices& devices) {
  try {
    const cuda::Driver& driver = cuda::driver();
    const auto check = [&](cuda::Result result) {
      if (!result.ok()) job_failed("{}", driver.describe(result));
    };
    int version = 0, count = 0;
    check(driver.version(&version));
    devices.driver = cuda::version_text(version);
    check(driver.device_count(&count));
    for (int index = 0; index < count; ++index)
      devices.cuda.push_back(cuda::describe_gpu(driver, index));
    if (devices.cuda.empty()) devices.why_no_cuda = "the NVIDIA driver sees no GPU";
  } catch (const Error& error) {
    devices.why_no_cuda = error.what();
  }
}

}  // namespace

std::string cublaslt_version() { return cuda::cublaslt().version_text(); }

std::string uncalibrated_note(const DeviceInfo& device) {
  if (!device.is_uncalibrated()) return {};
  return fmt::format(
      "uncalibrated: predictions for {} are guesses, by constants that were fitted to another GPU",
      device.target);
}

Devices find_devices() {
  Devices devices;
  devices.cpu = cpu_name();
  devices.cpu_threads = std::thread::hardware_concurrency();
  find_cuda(devices);
  return devices;
}

}  // namespace ac
