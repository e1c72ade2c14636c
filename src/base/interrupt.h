// What happens when SIGINT, SIGTERM or SIGHUP ends the program: the processes that it started end
// first, then its unfinished folders are removed, one line says so, and the program dies of the
// signal. A dialogue hears SIGINT instead: it stops an answer, and not the program. A server ends
// its answers first.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <mutex>
#include <set>

namespace ac {

// From here on. For main(), before there are threads. A signal that is ignored stays ignored.
void end_on_signals();

// In a new process, which signals shall end at once.
void heed_signals();

// What a signal must not leave behind. Whoever holds the lock keeps it from being seen half
// changed; once a signal has come nobody gets it any more, so that nothing new is begun.
struct Leftovers {
  std::mutex mutex;
  std::set<pid_t> groups;  // of processes
  std::set<std::filesystem::path> folders;
  std::function<void()> restore_terminal;  // if it is in a mode of its own

  static Leftovers& ours();
};

// A folder that a signal removes, while this exists.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(std::filesystem::path path);
  ~UnfinishedFolder();
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

 private:
  const std::filesystem::path path_;
};

// While this exists, the first signal calls `end` instead, in a thread of its own; a second one
// ends the program at once. There may be one at a time.
class OrderlyEnd {
 public:
  explicit OrderlyEnd(std::function<void()> end);
  ~OrderlyEnd();
  OrderlyEnd(const OrderlyEnd&) = delete;
  OrderlyEnd& operator=(const OrderlyEnd&) = delete;
};

// While this exists, SIGINT ends nothing. There may be one at a time.
class HeardInterrupts {
 public:
  HeardInterrupts();
  ~HeardInterrupts();
  HeardInterrupts(const HeardInterrupts&) = delete;
  HeardInterrupts& operator=(const HeardInterrupts&) = delete;

  bool any() const;  // since clear()
  void clear();
};

}  // namespace ac
