// The kernels and products that launches name, each loaded once, and their launches on a device.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/launch.h"

namespace ac {

class Launcher {
 public:
  explicit Launcher(Device& device) : device_(device) {}

  void add(const std::string& kernel, std::unique_ptr<Device::Kernel> loaded);
  // Has the device load what is not here yet.
  void add(const Product& product);
  void add(const Launch& launch, const std::map<std::string, std::filesystem::path>& files);

  // Launches the kernels of a step of `tokens` tokens in order. The first one starts when all work
  // before it is done, unless it `overlaps`. Each of the others waits by itself for what it needs.
  void launch(std::span<const Launch> launches, std::int64_t tokens,
              const std::vector<void*>& addresses, bool overlaps = true);
  // One that takes several rows, each with its addresses: as many as there are.
  void launch_rows(const Launch& launch, std::span<const std::vector<void*>> addresses,
                   bool overlaps = true);
  // Every kernel starts when all before it is done.
  void forbid_overlaps() { may_overlap_ = false; }

 private:
  const Device::Kernel& kernel_of(const Launch& launch) const;

  Device& device_;
  std::map<std::string, std::unique_ptr<Device::Kernel>> kernels_;
  std::map<Product, std::unique_ptr<Device::Kernel>> products_;
  bool may_overlap_ = true;
};

}  // namespace ac
