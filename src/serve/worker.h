// The process that has the device and runs the model. Whatever ends it (a lost device, no memory, a
// crash) costs the requests that it was at, and not the server: another one takes its place.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answer/answerer.h"
#include "answer/sequences.h"
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
  // A program that calls answer_requests() with its stdin. It ends with this process.
  explicit Worker(const std::vector<std::string>& command);
  // Lets it write what it is writing into files.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What it says before it can answer is thrown.
  void wait_until_loaded();
  // Each request has a number of its own, which is not 0.
  void ask(const TextRequest& request, std::uint64_t number);
  void stop(std::uint64_t number);
  // What it says next; waits for it, but not longer than `limit` if there is one. Nothing: it has
  // said nothing. WorkerLost: it has ended, has lost its device or says nonsense.
  std::optional<FromWorker> hear(std::optional<std::chrono::milliseconds> limit = {});

  std::int64_t max_context() const { return loaded_.max_context; }
  const std::string& fingerprint() const { return loaded_.fingerprint; }
  std::int64_t piece() const { return loaded_.piece; }
  std::int64_t cached_tokens() const { return cached_tokens_; }
  const std::optional<PrefixCounts>& cache_counts() const { return counts_; }

 private:
  [[noreturn]] void lost(const std::string& why);

  pid_t process_ = -1;  // -1: it has been waited for
  std::optional<Channel> channel_;
  Loaded loaded_;
  std::int64_t cached_tokens_ = 0;
  std::optional<PrefixCounts> counts_;
};

// The worker itself: answers until the server asks no more. A lost device is thrown.
// One request after the other.
void answer_requests(Channel& channel, Answerer& answerer, const std::string& fingerprint);
// As many at once as there are sequences; each request gets the free one that has most of its
// prompt. By the thread that has made the sequences.
void answer_requests(Channel& channel, Sequences& sequences, const ModelText& text,
                     const std::string& fingerprint);

}  // namespace ac::serve
