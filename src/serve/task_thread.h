// A thread that does one thing after the other: what takes too long for who answers clients.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace ac::serve {

class TaskThread {
 public:
  // Of the thread; `stopped`: it is called only to tell that nothing is done any more.
  using Task = std::function<void(bool stopped)>;
  explicit TaskThread(std::size_t most_waiting);
  ~TaskThread() { stop(); }

  // False: too many wait.
  bool add(Task task);
  // Lets the task under way end.
  void stop();

 private:
  void work();

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace ac::serve
