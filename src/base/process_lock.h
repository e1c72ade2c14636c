// One process at a time may do what this lock is for. Its end, whatever ends it, releases the lock.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace ac {

class ProcessLock {
 public:
  // Hears who has the lock: "process 17", or "another process" where the owner's id is unknown.
  using OnWait = std::function<void(const std::string& owner)>;

  // Waits until nobody has the lock; `on_wait` is called once if there is a wait. The file holds
  // the owner's process id, and is gone when nobody has the lock. Where it cannot be made, that is
  // an error (job_failed).
  explicit ProcessLock(std::filesystem::path file, const OnWait& on_wait = {});
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

 private:
  const std::filesystem::path file_;
  int lock_ = -1;
};

}  // namespace ac
