#include "device/devices.h"

#include <fmt/format.h>

#include <memory>

#include "base/json.h"
#include "cli/commands.h"

namespace ac {
namespace {

Json to_json(const Devices& devices) {
  Json cuda = Json::array();
  for (const CudaDevice& device : devices.cuda)
    cuda.push_back(
        {{"name", device.name},
         {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
         {"multiprocessors", device.multiprocessors},
         {"memory_bytes", device.memory_bytes},
         {"l2_bytes", device.l2_bytes}});
  return {{"host", {{"cpu", devices.cpu}, {"threads", devices.cpu_threads}}},
          {"cuda", std::move(cuda)},
          {"driver", devices.driver},
          {"build_toolkit", devices.build_toolkit},
          {"why_no_cuda", devices.why_no_cuda}};
}

void print(const Devices& devices) {
  fmt::print("host    {}, {} threads\n", devices.cpu, devices.cpu_threads);
  for (std::size_t i = 0; i < devices.cuda.size(); ++i) {
    const CudaDevice& device = devices.cuda[i];
    fmt::print("cuda:{}  {}, sm_{}{}, {} SMs, {:.1f} GiB, L2 {} MiB, driver for CUDA {}\n", i,
               device.name, device.compute_major, device.compute_minor, device.multiprocessors,
               static_cast<double>(device.memory_bytes) / (1 << 30), device.l2_bytes >> 20,
               devices.driver);
  }
  if (devices.cuda.empty()) fmt::print("cuda    none: {}\n", devices.why_no_cuda);
  fmt::print("build   {}\n", devices.build_toolkit.empty()
                                 ? "without a CUDA toolkit: host only"
                                 : "with CUDA toolkit " + devices.build_toolkit);
}

}  // namespace

void add_devices_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List what this machine can run on");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json] {
    const Devices devices = find_devices();
    if (*json)
      fmt::print("{}\n", to_json(devices).dump(2));
    else
      print(devices);
  });
}

}  // namespace ac
