#include "device/launcher.h"

#include <algorithm>

namespace ac {

void Launcher::add(const std::string& kernel, std::unique_ptr<Device::Kernel> loaded) {
  kernels_[kernel] = std::move(loaded);
}

void Launcher::add(const Product& product) {
  if (!products_.contains(product)) products_[product] = device_.load_product(product);
}

void Launcher::add(const Launch& launch,
                   const std::map<std::string, std::filesystem::path>& files) {
  if (launch.product)
    add(*launch.product);
  else if (!kernels_.contains(launch.kernel))
    add(launch.kernel, device_.load(files.at(launch.kernel), launch.kernel));
}

const Device::Kernel& Launcher::kernel_of(const Launch& launch) const {
  return launch.product ? *products_.at(*launch.product) : *kernels_.at(launch.kernel);
}

void Launcher::launch_rows(const Launch& launch, std::span<const std::vector<void*>> addresses,
                           bool overlaps) {
  const auto most = static_cast<std::size_t>(launch.rows);
  for (std::size_t first = 0; first < addresses.size(); first += most) {
    const auto some = addresses.subspan(first, std::min(most, addresses.size() - first));
    const std::vector<std::byte> params = bind_rows(launch, some, device_.map_encoder());
    LaunchShape shape;
    for (std::size_t axis = 0; axis < 2; ++axis)
      shape.grid[axis] = static_cast<unsigned>(launch.grid[axis].at(1));
    shape.grid[2] = static_cast<unsigned>(some.size());
    shape.threads = static_cast<unsigned>(launch.threads);
    shape.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
    shape.overlaps = may_overlap_ && (overlaps || first > 0);
    device_.launch(kernel_of(launch), shape, params);
  }
}

void Launcher::launch(std::span<const Launch> launches, std::int64_t tokens,
                      const std::vector<void*>& addresses, bool overlaps) {
  launch_all(launches, tokens, addresses, device_.map_encoder(),
             [&](const Launch& launch, std::span<const std::byte> params) {
               LaunchShape shape;
               for (std::size_t axis = 0; axis < 3; ++axis)
                 shape.grid[axis] = static_cast<unsigned>(launch.grid[axis].at(tokens));
               shape.threads = static_cast<unsigned>(launch.threads);
               shape.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
               shape.overlaps = may_overlap_ && (overlaps || &launch != launches.data());
               shape.at_once = launch.at_once;
               device_.launch(kernel_of(launch), shape, params);
             });
}

}  // namespace ac
