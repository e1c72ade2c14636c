#include "device/device.h"

namespace ac {

double Device::time(const std::function<void()>& enqueue) {
  if (!turn_) return time_now(enqueue);
  const auto began = std::chrono::steady_clock::now();
  const std::shared_ptr<void> turn = turn_();
  waited_ += std::chrono::steady_clock::now() - began;
  return time_now(enqueue);
}

}  // namespace ac
