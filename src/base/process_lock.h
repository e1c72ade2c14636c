// One process at a time may do what this lock is for. Its end, whatever ends it, releases the lock.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>

namespace ac {

class ProcessLock {
 public:
  // Waits until nobody has it; `on_wait` hears once who has (0: unknown). The file holds the
  // owner's process id, and is gone when nobody has the lock. Where it cannot be made, that is an
  // error (job_failed).
  explicit ProcessLock(std::filesystem::path file, const std::function<void(pid_t)>& on_wait = {});
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

 private:
  const std::filesystem::path file_;
  int lock_ = -1;
};

}  // namespace ac
