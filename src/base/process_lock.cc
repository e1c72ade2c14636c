#include "base/process_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace ac {
namespace {

// A process writes its id after it takes the lock. Until then the file is empty, or it names an
// owner that was killed; on a full disk it stays so.
std::string owner_in(int file) {
  for (int tries = 0; tries < 100; ++tries) {
    char text[24] = {};
    const ssize_t got = pread(file, text, sizeof text - 1, 0);
    const auto id = static_cast<pid_t>(got > 0 ? std::atol(text) : 0);
    if (id > 0 && (kill(id, 0) == 0 || errno == EPERM)) return fmt::format("process {}", id);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "another process";
}

// Whoever releases a lock removes its file: one that was waited for may not be there any more.
bool is_still_there(int file, const std::filesystem::path& path) {
  struct stat ours{}, there{};
  return fstat(file, &ours) == 0 && stat(path.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace

ProcessLock::ProcessLock(std::filesystem::path file, const OnWait& on_wait)
    : file_(std::move(file)) {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  for (bool said = false;;) {
    lock_ = open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0)
      job_failed("{}: cannot make the lock: {}", file_.string(),
                 error ? error.message() : std::strerror(errno));
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return;  // a file system without locks
      if (on_wait && !std::exchange(said, true)) on_wait(owner_in(lock_));
      while (flock(lock_, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
    if (is_still_there(lock_, file_)) break;
    close(lock_);
  }
  const std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(lock_, 0) != 0 || pwrite(lock_, pid.data(), pid.size(), 0) < 0) {
    // A full disk: the lock holds all the same, and only its owner's name is missing.
  }
}

ProcessLock::~ProcessLock() {
  unlink(file_.c_str());
  close(lock_);
}

}  // namespace ac
