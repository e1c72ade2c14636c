#include "base/forked.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace ac {
namespace {

// The system lets a child end with the thread that has started it. So one thread, which never ends,
// starts all children.
class Starter {
 public:
  explicit Starter(Starter* of_parent) : of_parent_(of_parent) {}

  pid_t run(std::packaged_task<pid_t()> task) {
    std::future<pid_t> started = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(has_thread_, true)) std::thread([this] { work(); }).detach();
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return started.get();
  }

 private:
  [[noreturn]] void work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      std::packaged_task<pid_t()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<pid_t()>> tasks_;
  bool has_thread_ = false;
  [[maybe_unused]] Starter* const of_parent_;  // so that nobody takes it for lost memory
};
// Its thread outlives main(), and is in no process that forks from this one: that makes its own
// when it starts a process. It must not do so as it forks, as a thread that is not in it may have
// the lock of the memory's allocator.
std::atomic<Starter*> starter = nullptr;
Starter* starter_of_parent = nullptr;
[[maybe_unused]] const int forgets_starter = pthread_atfork(nullptr, nullptr, [] {
  if (Starter* const of_parent = starter.exchange(nullptr)) starter_of_parent = of_parent;
});

Starter& own_starter() {
  Starter* known = starter;
  if (known != nullptr) return *known;
  auto made = std::make_unique<Starter>(starter_of_parent);
  return starter.compare_exchange_strong(known, made.get()) ? *made.release() : *known;
}

pid_t start(const std::function<void()>& child, int niceness) {
  Leftovers& ours = Leftovers::ours();
  const pid_t parent = getpid();
  std::unique_lock lock(ours.mutex);
  const pid_t process = fork();
  if (process < 0) job_failed("cannot start a process: {}", std::strerror(errno));
  if (process == 0) {
    lock.unlock();
    setpgid(0, 0);
    setpriority(PRIO_PROCESS, 0, niceness);
    // Nobody is left who would stop a child of a process that was killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);
    heed_signals();
    signal(SIGTTOU, SIG_IGN);  // it may write to a terminal that it is in the background of
    child();
    _exit(0);
  }
  setpgid(process, process);  // whoever of the two comes first
  ours.groups.insert(process);
  return process;
}

}  // namespace

pid_t start_process(const std::function<void()>& child) {
  const int niceness = getpriority(PRIO_PROCESS, 0);  // of this thread
  return own_starter().run(std::packaged_task<pid_t()>([&] { return start(child, niceness); }));
}

int wait_for(pid_t process) {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) < 0 &&
         errno == EINTR) {
  }
  // While a signal ends all processes, nobody hears that one has ended.
  Leftovers& ours = Leftovers::ours();
  const std::lock_guard lock(ours.mutex);
  ours.groups.erase(process);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool is_running(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const std::size_t name = stat.rfind(") ");
  return name != std::string::npos && stat.compare(name + 2, 1, "Z") != 0;
}

void end_process(pid_t process) { kill(-process, SIGKILL); }

}  // namespace ac
