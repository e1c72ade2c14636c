// Kernels that are built before anybody asks for them, with low priority, beside whatever is timed:
// who asks for some waits for those, and they come first then.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/timeline.h"
#include "build/compile.h"

namespace ac {

class AheadBuilds {
 public:
  // `jobs`: builds at once. `timeline`: null, or what hears of each.
  AheadBuilds(KernelBuilder& builder, Target target, unsigned jobs, Timeline* timeline);
  ~AheadBuilds();  // what was not begun is left
  AheadBuilds(const AheadBuilds&) = delete;
  AheadBuilds& operator=(const AheadBuilds&) = delete;

  // Behind those that wait; each kernel once.
  void add(std::vector<KernelSource> sources);
  // Waits for those of these kernels that were added. What went wrong with any build is thrown.
  void finish(const std::vector<KernelSource>& sources);
  // Waits until nothing is being built, and keeps it so while this lasts: for who forks.
  class Rest {
   public:
    explicit Rest(AheadBuilds& builds);
    ~Rest();
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    AheadBuilds& builds_;
  };

 private:
  void work();

  KernelBuilder& builder_;
  const Target target_;
  const unsigned jobs_;
  Timeline* const timeline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<KernelSource> waiting_;
  std::set<std::string> known_, done_;  // entries
  unsigned busy_ = 0;
  bool rests_ = false, ends_ = false;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;
};

}  // namespace ac
