#include "serve/queue.h"

#include <exception>
#include <utility>

#include "base/warning.h"

namespace ac::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kIdle = std::chrono::milliseconds(300);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Queue::Added Queue::add(std::vector<TextRequest> requests, std::shared_ptr<Listener> listener) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Added::closed;
  // Clients that have left make room.
  for (auto at = waiting_.begin(); at != waiting_.end() && waiting_.size() >= most_waiting_;) {
    if (at->listener->waits()) {
      ++at;
      continue;
    }
    at->listener->done();
    metrics_.queued(-1);
    metrics_.cancelled();
    at = waiting_.erase(at);
  }
  if (waiting_.size() >= most_waiting_) return Added::full;
  waiting_.push_back({std::move(requests), std::move(listener), Clock::now()});
  metrics_.queued(1);
  changed_.notify_one();
  return Added::yes;
}

bool Queue::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Queue::work(const std::function<void()>& between) {
  for (;;) {
    if (between) between();
    metrics_.prefix_cache(answerer_.cache_counts());
    Waiting next;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, kIdle, [&] { return closed_ || !waiting_.empty(); })) continue;
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    metrics_.queued(-1);
    metrics_.running(1);
    try {
      try {
        answer(next);
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        job_failed("{}", error.what());
      }
    } catch (const Error& error) {
      metrics_.running(-1);
      next.listener->failed(error);
      if (error.fault() != Fault::device_lost) continue;
      fail_all(error);
      throw;
    }
    // Whoever has its answer sees nothing running.
    metrics_.running(-1);
    next.listener->done();
    try {
      answerer_.keep();
    } catch (const Error& error) {
      if (error.fault() == Fault::device_lost) {
        fail_all(error);
        throw;
      }
      warn("the prompt was not kept: {}", error.what());
    }
  }
}

void Queue::fail_all(const Error& error) {
  close();
  const std::lock_guard lock(mutex_);
  for (const Waiting& each : waiting_) each.listener->failed(error);
}

void Queue::answer(const Waiting& waiting) {
  Listener& listener = *waiting.listener;
  for (std::size_t i = 0; i < waiting.requests.size() && listener.waits(); ++i) {
    auto last = waiting.since;
    bool first = true;
    const TextAnswer answer = answerer_.answer(
        waiting.requests[i],
        [&](const TextPiece& piece) {
          if (piece.token >= 0) {
            const double seconds = seconds_since(std::exchange(last, Clock::now()));
            std::exchange(first, false) ? metrics_.first_token(seconds)
                                        : metrics_.next_token(seconds);
          }
          listener.piece(i, piece);
        },
        [&] { return !listener.waits(); });
    metrics_.prompt(answer.prompt_tokens, answer.cached);
    metrics_.context(answerer_.cached_tokens(), answerer_.program().max_context);
    // Whoever has its answer sees what the cache gave it.
    metrics_.prefix_cache(answerer_.cache_counts());
    listener.answered(i, answer);
    if (!listener.waits()) metrics_.cancelled();
  }
  metrics_.answered(seconds_since(waiting.since));
}

}  // namespace ac::serve
