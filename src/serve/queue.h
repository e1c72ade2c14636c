// The way of requests to the engine: a bounded queue, in the order in which they come. One is
// answered at a time. An engine with several sequences would take several of them at once here, and
// nobody else would have to know.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "answer/answerer.h"
#include "base/error.h"
#include "serve/metrics.h"

namespace ac::serve {

// Who waits for answers. Called by the engine's thread.
class Listener {
 public:
  virtual ~Listener() = default;
  // False: it needs no more of them. Asked between tokens.
  virtual bool waits() const = 0;
  virtual void piece(std::size_t answer, const TextPiece& piece) = 0;
  virtual void answered(std::size_t answer, const TextAnswer& whole) = 0;
  virtual void done() = 0;  // all are answered, or it waits no more
  virtual void failed(const Error& error) = 0;
};

class Queue {
 public:
  Queue(Answerer& answerer, Metrics& metrics, std::size_t most_waiting)
      : answerer_(answerer), metrics_(metrics), most_waiting_(most_waiting) {}

  enum class Added { yes, full, closed };
  // The requests are answered one after another.
  Added add(std::vector<TextRequest> requests, std::shared_ptr<Listener> listener);
  bool is_closed() const;
  // Takes no more requests.
  void close();

  // Answers requests until the queue is closed and empty. The engine belongs to the thread that
  // calls it; `between` is called between answers, and some times a second while nobody asks. A
  // lost device is an error (device_lost); all who wait have heard of it then.
  void work(const std::function<void()>& between = {});

 private:
  struct Waiting {
    std::vector<TextRequest> requests;
    std::shared_ptr<Listener> listener;
    std::chrono::steady_clock::time_point since;
  };
  void answer(const Waiting& waiting);
  void fail_all(const Error& error);

  Answerer& answerer_;
  Metrics& metrics_;
  const std::size_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool closed_ = false;
};

}  // namespace ac::serve
