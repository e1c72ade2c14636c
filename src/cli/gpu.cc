#include "cli/gpu.h"

#include "base/child.h"
#include "base/error.h"
#include "device/device.h"
#include "device/devices.h"

namespace ac {

Gpu find_gpu() {
  const ChildTask ask([] {
    const auto device = open_cuda_device();
    return Json{{"info", to_json(device->info())},
                {"name", device->name()},
                {"driver", find_devices().driver}}
        .dump();
  });
  const std::vector<ChildResult> results = run_in_children({ask}, 1, std::chrono::seconds(60));
  if (!results[0].ok()) job_failed("{}", results[0].ended);
  const Json answer = Json::parse(results[0].text);
  return {device_info_from_json(answer.at("info")), answer.at("name"), answer.at("driver")};
}

}  // namespace ac
