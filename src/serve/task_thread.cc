#include "serve/task_thread.h"

#include <utility>

namespace ac::serve {

TaskThread::TaskThread(std::size_t most_waiting)
    : most_waiting_(most_waiting), thread_([this] { work(); }) {}

bool TaskThread::add(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    if (!stopped_) {
      waiting_.push_back(std::move(task));
      changed_.notify_one();
      return true;
    }
  }
  task(true);
  return true;
}

void TaskThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void TaskThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Task task = std::move(waiting_.front());
    waiting_.pop_front();
    const bool stopped = stopped_;
    lock.unlock();
    task(stopped);
    lock.lock();
  }
}

}  // namespace ac::serve
