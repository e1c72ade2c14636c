// Splits a loop over threads. Each index is computed by one thread, in the same order as without
// threads, so results do not depend on how many there are.
#pragma once

#include <cstdint>
#include <functional>

namespace ac {

// Calls body(begin, end) on disjoint ranges that cover [0, count), on at most `threads` threads
// with at least `grain` indices each. The first exception of a body is thrown on.
void parallel_for(int threads, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

}  // namespace ac
