// What a compiler must know of a device to plan for it, also of one that is not in this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "device/calibration.h"

namespace ac {

struct DeviceInfo {
  std::string target;  // "sm_90"; "host"
  std::string name;    // of the card that the figures are of
  int sm = 0;          // 90; 0 for the host
  int multiprocessors = 0;
  int registers = 0;         // of 32 bits, an SM
  int threads = 0;           // an SM
  int blocks = 0;            // an SM
  int shared_bytes = 0;      // an SM
  int max_shared_bytes = 0;  // a block
  std::int64_t l2_bytes = 0;
  double bandwidth = 0;      // of memory, as streaming kernels reach it, bytes a second
  double flops = 0;          // float32, a second
  double tensor_flops = 0;   // 16-bit, a second
  double latency = 0;        // of a load from memory under way with others, seconds
  double launch = 0;         // of a kernel in a graph, seconds
  bool async_copies = true;  // cp.async
  bool bulk_copies = true;   // cp.async.bulk
  bool warpgroups = false;   // wgmma
  const Calibration* calibration = nullptr;  // none: it is uncalibrated

  // Of the cost model: the GPU's own, or the H100's as a guess.
  const Calibration& constants() const;
  bool is_uncalibrated() const { return sm > 0 && calibration == nullptr; }

  bool operator==(const DeviceInfo&) const = default;
};

const std::vector<DeviceInfo>& known_devices();
Json to_json(const DeviceInfo& device);
DeviceInfo device_info_from_json(const Json& json);

// By target. One that is not known is an error (wrong_usage) naming those that are.
const DeviceInfo& device_info(std::string_view target);

}  // namespace ac
