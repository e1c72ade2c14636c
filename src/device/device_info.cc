#include "device/device_info.h"

#include "base/error.h"
#include "base/text.h"

namespace ac {

namespace {

constexpr Calibration kH100;

}  // namespace

const std::vector<DeviceInfo>& known_devices() {
  // Bandwidths are about 93 % of the data sheets', which is what streaming reads reach.
  static const std::vector<DeviceInfo> devices = [] {
    constexpr int kKb = 1024;
    DeviceInfo a100;
    a100.target = "sm_80", a100.name = "A100 SXM 80GB", a100.sm = 80;
    a100.multiprocessors = 108, a100.registers = 65536, a100.threads = 2048, a100.blocks = 32;
    a100.shared_bytes = 164 * kKb, a100.max_shared_bytes = 163 * kKb, a100.l2_bytes = 40 << 20;
    a100.bandwidth = 1.85e12, a100.flops = 19.5e12, a100.tensor_flops = 312e12;
    a100.latency = 0.75e-6, a100.launch = 1.3e-6;
    a100.bulk_copies = false;

    DeviceInfo ada = a100;
    ada.target = "sm_89", ada.name = "L40S", ada.sm = 89;
    ada.multiprocessors = 142, ada.threads = 1536, ada.blocks = 24;
    ada.shared_bytes = 100 * kKb, ada.max_shared_bytes = 99 * kKb, ada.l2_bytes = 96 << 20;
    ada.bandwidth = 0.8e12, ada.flops = 91.6e12, ada.tensor_flops = 362e12;

    DeviceInfo h100 = a100;
    h100.target = "sm_90", h100.name = "H100 SXM 80GB", h100.sm = 90;
    h100.multiprocessors = 132, h100.shared_bytes = 228 * kKb;
    h100.max_shared_bytes = 227 * kKb, h100.l2_bytes = 50 << 20;
    h100.bandwidth = 3.09e12, h100.flops = 66.9e12, h100.tensor_flops = 989e12;
    h100.bulk_copies = h100.warpgroups = true;
    h100.calibration = &kH100;

    DeviceInfo b200 = h100;
    b200.target = "sm_100", b200.name = "B200", b200.sm = 100;
    b200.multiprocessors = 148, b200.l2_bytes = 126 << 20;
    b200.warpgroups = false, b200.calibration = nullptr;
    b200.bandwidth = 7.4e12, b200.flops = 75e12, b200.tensor_flops = 2250e12;

    // Blocks in turn on the CPU: as roomy as the roomiest GPU, but a thread costs what it does, so
    // that few are worth having. Speed is that of one core.
    DeviceInfo host = h100;
    host.target = "host", host.name = "host device", host.sm = 0;
    host.warpgroups = false;  // it runs such kernels, but gains nothing
    host.calibration = nullptr;
    host.multiprocessors = 1, host.threads = 256;
    host.bandwidth = 1e9, host.flops = 1e9, host.tensor_flops = 1e8;
    return std::vector<DeviceInfo>{a100, ada, h100, b200, host};
  }();
  return devices;
}

const DeviceInfo& device_info(std::string_view target) {
  std::string known;
  for (const DeviceInfo& device : known_devices()) {
    if (device.target == target) return device;
    known += (known.empty() ? "" : ", ") + device.target;
  }
  wrong_usage("unknown target {}: known are {}", quote(target), known);
}

const Calibration& DeviceInfo::constants() const {
  return calibration != nullptr ? *calibration : kH100;
}

namespace {

// The fields, once for both directions.
template <class Device, class Visit>
void each_field(Device& d, const Visit& visit) {
  visit("target", d.target), visit("name", d.name), visit("sm", d.sm);
  visit("multiprocessors", d.multiprocessors), visit("registers", d.registers);
  visit("threads", d.threads), visit("blocks", d.blocks), visit("shared_bytes", d.shared_bytes);
  visit("max_shared_bytes", d.max_shared_bytes), visit("l2_bytes", d.l2_bytes);
  visit("bandwidth", d.bandwidth), visit("flops", d.flops), visit("tensor_flops", d.tensor_flops);
  visit("latency", d.latency), visit("launch", d.launch);
  visit("async_copies", d.async_copies), visit("bulk_copies", d.bulk_copies);
  visit("warpgroups", d.warpgroups);
}

}  // namespace

Json to_json(const DeviceInfo& device) {
  Json json;
  each_field(device, [&](const char* name, const auto& value) { json[name] = value; });
  json["calibrated"] = device.calibration != nullptr;
  return json;
}

DeviceInfo device_info_from_json(const Json& json) {
  DeviceInfo device;
  each_field(device, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  if (json.at("calibrated").get<bool>())
    device.calibration = device_info(device.target).calibration;
  return device;
}

}  // namespace ac
