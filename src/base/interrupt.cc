#include "base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace ac {
namespace {

using namespace std::chrono_literals;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Whether somebody hears SIGINT, and whether it has come.
std::atomic<bool> is_heard = false, has_come = false;

// Of an OrderlyEnd; empty: there is none, or it was called already.
struct {
  std::mutex mutex;
  std::function<void()> call;
} orderly_end;

bool end_in_order() {
  const std::lock_guard lock(orderly_end.mutex);
  if (!orderly_end.call) return false;
  std::exchange(orderly_end.call, nullptr)();
  return true;
}

// Processes that were just killed may still have written into it.
void clear_away(const std::filesystem::path& folder) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    if (!error) return;
    std::this_thread::sleep_for(10ms);
  }
}

void say_interrupted() {
  // Other threads say nothing after it. One of them may be stuck in the middle of a line.
  for (int attempt = 0; attempt < 20 && ftrylockfile(stderr) != 0; ++attempt)
    std::this_thread::sleep_for(1ms);
  const std::string_view line =
      isatty(STDERR_FILENO) == 1 ? "\r\033[Kinterrupted\n" : "interrupted\n";
  [[maybe_unused]] const ssize_t wrote = write(STDERR_FILENO, line.data(), line.size());
}

[[noreturn]] void end_by(int which) {
  Leftovers& ours = Leftovers::ours();
  ours.mutex.lock();  // for good
  if (ours.restore_terminal) ours.restore_terminal();
  for (const pid_t group : ours.groups) kill(-group, SIGKILL);
  for (const std::filesystem::path& folder : ours.folders) clear_away(folder);
  say_interrupted();
  // Of the signal itself: that is how a shell learns that its script is to end, too.
  signal(which, SIG_DFL);
  heed_signals();
  kill(getpid(), which);
  _exit(128 + which);  // the first process of a container does not die of it
}

sigset_t set_of(bool with_ignored) {
  sigset_t set;
  sigemptyset(&set);
  for (const int which : kSignals) {
    struct sigaction now{};
    sigaction(which, nullptr, &now);
    if (with_ignored || now.sa_handler != SIG_IGN) sigaddset(&set, which);
  }
  return set;
}

}  // namespace

Leftovers& Leftovers::ours() {
  static Leftovers* const leftovers = new Leftovers;  // for threads that outlive main()
  return *leftovers;
}

void end_on_signals() {
  const sigset_t set = set_of(false);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set] {
    for (int which = 0; sigwait(&set, &which) == 0;) {
      if (which == SIGINT && is_heard)
        has_come = true;
      else if (!end_in_order())
        end_by(which);
    }
  }).detach();
}

void heed_signals() {
  const sigset_t set = set_of(true);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

OrderlyEnd::OrderlyEnd(std::function<void()> end) {
  const std::lock_guard lock(orderly_end.mutex);
  AC_ASSERT(!orderly_end.call);
  orderly_end.call = std::move(end);
}
OrderlyEnd::~OrderlyEnd() {
  const std::lock_guard lock(orderly_end.mutex);
  orderly_end.call = nullptr;
}

HeardInterrupts::HeardInterrupts() {
  AC_ASSERT(!is_heard);
  has_come = false, is_heard = true;
}
HeardInterrupts::~HeardInterrupts() { is_heard = false; }
bool HeardInterrupts::any() const { return has_come; }
void HeardInterrupts::clear() { has_come = false; }

UnfinishedFolder::UnfinishedFolder(std::filesystem::path path) : path_(std::move(path)) {
  Leftovers& ours = Leftovers::ours();
  const std::lock_guard lock(ours.mutex);
  ours.folders.insert(path_);
}

UnfinishedFolder::~UnfinishedFolder() {
  Leftovers& ours = Leftovers::ours();
  const std::lock_guard lock(ours.mutex);
  ours.folders.erase(path_);
}

}  // namespace ac
