#include "compile/caches.h"

#include <algorithm>

namespace ac {
namespace {

constexpr std::int64_t kChunkOnGpu = 2048, kChunkOnHost = 128;

}  // namespace

std::int64_t default_chunk(const DeviceInfo& device) {
  return device.sm > 0 ? kChunkOnGpu : kChunkOnHost;
}

std::vector<CacheSpec> cache_specs(const StepGraph& step, std::int64_t max_context,
                                   std::int64_t chunk) {
  std::vector<CacheSpec> specs;
  for (const Cache& cache : step.caches) {
    std::int64_t slots = max_context;
    if (cache.window > 0) slots = std::min(slots, cache.window + chunk - 1);
    specs.push_back(
        {cache.dtype, cache.heads, cache.key_size, cache.value_size, cache.window, slots});
  }
  return specs;
}

}  // namespace ac
