// The process that has the device and runs the model. Whatever ends it (a lost device, no memory, a
// crash) costs the request that it was at, and not the server: another one takes its place.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "answer/answerer.h"
#include "serve/channel.h"
#include "serve/messages.h"

namespace ac::serve {

// A worker has ended, or has lost its device.
class WorkerLost : public Error {
 public:
  explicit WorkerLost(const std::string& why) : Error(Fault::job_failed, why) {}
};

// As the server sees it.
class Worker {
 public:
  // A program that calls answer_requests() with its stdin. It ends with the thread that starts it.
  explicit Worker(const std::vector<std::string>& command);
  // Lets it write what it is writing into files.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What it says before it can answer is thrown.
  void wait_until_loaded();
  // As Answerer::answer(), without what the pieces have said: WorkerLost, or what the worker
  // throws.
  TextAnswer answer(const TextRequest& request,
                    const std::function<void(const TextPiece&)>& on_piece,
                    const std::function<bool()>& stopped);
  // Whether it has heard of the last request.
  bool has_begun() const { return begun_; }
  // Hears what it says by itself.
  void listen();

  std::int64_t max_context() const { return loaded_.max_context; }
  const std::string& fingerprint() const { return loaded_.fingerprint; }
  std::int64_t cached_tokens() const { return cached_tokens_; }
  const std::optional<PrefixCounts>& cache_counts() const { return counts_; }

 private:
  // Nothing: none has come so far.
  std::optional<FromWorker> hear(std::optional<std::chrono::milliseconds> limit);
  [[noreturn]] void lost(const std::string& why);

  pid_t process_ = -1;  // -1: it has been waited for
  std::optional<Channel> channel_;
  bool begun_ = false;
  Loaded loaded_;
  std::int64_t cached_tokens_ = 0;
  std::optional<PrefixCounts> counts_;
};

// The worker itself: answers until the server asks no more. A lost device is thrown.
void answer_requests(Channel& channel, Answerer& answerer, const std::string& fingerprint);

}  // namespace ac::serve
