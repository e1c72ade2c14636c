#include "cli/gpu.h"

#include "base/child.h"
#include "base/error.h"
#include "device/device.h"

namespace ac {
namespace {

// Asked of a child process: one that has started CUDA cannot fork any more.
ChildResult ask() {
  return run_in_children({ChildTask([] { return to_json(open_cuda_device()->info()).dump(); })}, 1,
                         std::chrono::seconds(60))[0];
}

}  // namespace

DeviceInfo gpu_info() {
  const ChildResult result = ask();
  if (!result.ok()) job_failed("{}", result.ended);
  return device_info_from_json(Json::parse(result.text));
}

std::optional<DeviceInfo> find_gpu() {
  const ChildResult result = ask();
  if (!result.ok()) return std::nullopt;
  return device_info_from_json(Json::parse(result.text));
}

}  // namespace ac
