#include "reference/parallel.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace ac {

void parallel_for(int threads, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body) {
  const std::int64_t pieces =
      std::min<std::int64_t>(threads, count / std::max<std::int64_t>(grain, 1));
  if (pieces <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(pieces));
  const auto run = [&](std::int64_t piece) {
    try {
      body(count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
      failures[static_cast<std::size_t>(piece)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> workers;
    workers.reserve(failures.size());
    for (std::int64_t piece = 1; piece < pieces; ++piece) workers.emplace_back(run, piece);
    run(0);
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace ac
