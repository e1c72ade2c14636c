#include "cli/gpu.h"

#include "base/child.h"
#include "base/error.h"
#include "device/device.h"
#include "device/devices.h"

namespace ac {
namespace {

// Asked of a child process: one that has started CUDA cannot fork any more.
ChildResult ask() {
  const ChildTask task([] {
    const auto device = open_cuda_device();
    return Json{{"info", to_json(device->info())},
                {"name", device->name()},
                {"driver", find_devices().driver}}
        .dump();
  });
  return run_in_children({task}, 1, std::chrono::seconds(60))[0];
}

Gpu gpu_of(const ChildResult& result) {
  const Json answer = Json::parse(result.text);
  return {device_info_from_json(answer.at("info")), answer.at("name"), answer.at("driver")};
}

}  // namespace

Gpu the_gpu() {
  const ChildResult result = ask();
  if (!result.ok()) job_failed("{}", result.ended);
  return gpu_of(result);
}

std::optional<Gpu> find_gpu() {
  const ChildResult result = ask();
  if (!result.ok()) return std::nullopt;
  return gpu_of(result);
}

}  // namespace ac
