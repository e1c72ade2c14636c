#include "device/launcher.h"

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
               device_.launch(kernel_of(launch), shape, params);
             });
}

}  // namespace ac
