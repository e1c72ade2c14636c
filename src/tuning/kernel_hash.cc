#include "tuning/kernel_hash.h"

#include <fmt/format.h>

#include <algorithm>

#include "build/digest.h"

namespace ac::tuning {

std::string kernel_hash(const std::vector<KernelSource>& sources, Headers& headers) {
  std::vector<std::string> parts;
  for (const KernelSource& source : sources) {
    std::string part = source.entry + "\n" + sha256(source.text);
    for (const Header* header : headers.reached_by(source.text))
      part += "\n" + header->name + " " + header->digest;
    parts.push_back(std::move(part));
  }
  std::sort(parts.begin(), parts.end());
  std::string all;
  for (const std::string& part : parts) all += part + "\n\n";
  return sha256(all);
}

std::string fingerprint(const DeviceInfo& device, const std::string& name) {
  return fmt::format("{} ({}, {} SMs, {} MiB L2)", name, device.target, device.multiprocessors,
                     device.l2_bytes >> 20);
}

}  // namespace ac::tuning
