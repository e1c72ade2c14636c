#include "base/timing_turn.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace ac {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// How long whoever measures looks away. An answer takes some hundred milliseconds at least.
constexpr auto kLook = 2ms;
constexpr auto kSay = 500ms;

// Bytes of the file. Whoever answers holds both; whoever measures looks at the first one before
// each measurement, and holds the second one meanwhile. So an answer waits for no second one.
enum class Byte : std::uint8_t { wanted, used };

// A lock of the open file, not of the process: threads and objects have locks of their own.
bool lock(int file, Byte byte, short kind, bool waits = false) {
  struct flock one{};
  one.l_type = kind;
  one.l_whence = SEEK_SET;
  one.l_start = static_cast<off_t>(byte);
  one.l_len = 1;
  for (;;) {
    if (fcntl(file, waits ? F_OFD_SETLKW : F_OFD_SETLK, &one) == 0) return true;
    if (errno == EINTR) continue;
    return errno != EAGAIN && errno != EACCES;  // a file system without locks: nobody is there
  }
}

// False while somebody answers, or another one measures.
bool take_alone(int file) {
  if (!lock(file, Byte::wanted, F_WRLCK)) return false;
  const bool taken = lock(file, Byte::used, F_WRLCK);
  lock(file, Byte::wanted, F_UNLCK);
  return taken;
}

}  // namespace

TimingTurn::TimingTurn(const std::filesystem::path& file) {
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  file_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
}

TimingTurn::~TimingTurn() {
  if (file_ >= 0) close(file_);
}

void TimingTurn::Turn::give_back() const {
  if (file_ < 0) return;
  lock(file_, Byte::used, F_UNLCK);
  lock(file_, Byte::wanted, F_UNLCK);
}

TimingTurn::Turn TimingTurn::answer() {
  if (file_ >= 0) {
    lock(file_, Byte::wanted, F_RDLCK, true);
    lock(file_, Byte::used, F_RDLCK, true);
  }
  return Turn(file_);
}

TimingTurn::Turn TimingTurn::measure(const std::function<void()>& on_wait) {
  if (file_ < 0 || take_alone(file_)) return Turn(file_);
  for (auto said = Clock::now(); !take_alone(file_);) {
    std::this_thread::sleep_for(kLook);
    if (on_wait && Clock::now() - said > kSay) on_wait(), said = Clock::now();
  }
  return Turn(file_);
}

std::filesystem::path turns_file(const std::filesystem::path& cache, bool is_gpu) {
  return cache.empty() ? cache : cache / (is_gpu ? "turns-cuda" : "turns-host");
}

}  // namespace ac
