// Random data for the buffers of a race. One pool is drawn, once in a thread; every buffer is made
// of it, at a place, of a dtype and a scale of its own. Kernels run on data that is neither
// constant nor repeated soon (a GPU is faster on zeros), and the processor draws no more of it than
// needed: a small model wants little of it.
#pragma once

#include <memory>
#include <span>

#include "base/dtype.h"
#include "device/device.h"

namespace ac {

class RandomPool {
 public:
  using Memories = std::span<const std::unique_ptr<Device::Memory>>;
  // All of every copy, with normal numbers of this standard deviation; copies that are equally long
  // hold the same numbers, in an order of their own.
  void fill(Device& device, Memories copies, DType dtype, double scale);

 private:
  std::size_t next_ = 0;  // where the next buffer begins in the pool
};

}  // namespace ac
