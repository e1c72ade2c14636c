#include "serve/queue.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace ac::serve {
namespace {

constexpr auto kIdle = std::chrono::milliseconds(300);
// After so many workers in a row that gave nothing, requests are refused.
constexpr int kMostFailures = 5;
constexpr std::chrono::milliseconds kFirstPause{250}, kLongestPause{30'000};

std::chrono::milliseconds pause_after(int failures) {
  if (failures == 0) return std::chrono::milliseconds(0);
  return std::min(kFirstPause * (1 << std::min(failures - 1, 10)), kLongestPause);
}

}  // namespace

Queue::Added Queue::add(std::size_t model, std::vector<TextRequest> requests,
                        std::shared_ptr<Listener> listener) {
  const std::lock_guard lock(mutex_);
  if (closed_ || !no_worker_.empty()) return Added::refused;
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
  waiting_.push_back({model, std::move(requests), std::move(listener), Clock::now()});
  metrics_.queued(1);
  changed_.notify_one();
  return Added::yes;
}

std::string Queue::why_not() const {
  const std::lock_guard lock(mutex_);
  return closed_ ? "the server is ending" : no_worker_;
}

std::string Queue::fingerprint(std::size_t model) const {
  const std::lock_guard lock(mutex_);
  const auto known = fingerprints_.find(model);
  return known == fingerprints_.end() ? "" : known->second;
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Queue::load(std::size_t model) {
  worker_ = nullptr;  // there may be no room for two
  std::unique_ptr<Worker> worker = start_(model);
  worker->wait_until_loaded();
  metrics_.context(0, worker->max_context());
  {
    const std::lock_guard lock(mutex_);
    fingerprints_[model] = worker->fingerprint();
  }
  worker_ = std::move(worker);
  model_ = model;
  last_good_ = model;
}

void Queue::work(const std::function<bool()>& between) {
  for (;;) {
    if (between && between()) worker_ = nullptr;
    if (worker_) try {
        worker_->listen();
        metrics_.prefix_cache(worker_->cache_counts());
      } catch (const WorkerLost& lost) {
        worker_ended(lost.what());
      }
    if (auto waiting = next()) {
      answer_all(*std::move(waiting));
      continue;
    }
    std::unique_lock lock(mutex_);
    if (closed_ && waiting_.empty()) break;
    const bool is_patient = try_again_ > Clock::now();
    changed_.wait_for(lock, kIdle, [&] { return !is_patient && (closed_ || !waiting_.empty()); });
  }
  worker_ = nullptr;
}

std::optional<Queue::Waiting> Queue::next() {
  std::optional<std::size_t> wanted = last_good_;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty())
      wanted = waiting_.front().model;
    else if (closed_)
      return std::nullopt;
  }
  if (!wanted || !has_worker_for(*wanted)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || waiting_.front().model != model_) return std::nullopt;
  Waiting first = std::move(waiting_.front());
  waiting_.pop_front();
  metrics_.queued(-1);
  return first;
}

bool Queue::has_worker_for(std::size_t model) {
  if (worker_ && model_ == model) return true;
  if (try_again_ > Clock::now()) return false;
  try {
    load(model);
  } catch (const Error& error) {
    if (model == last_good_) {
      worker_ended(error.what());
    } else {
      fmt::print(stderr, "warning: a model cannot be loaded: {}\n", error.what());
      fail(model, error.what());
    }
    return false;
  }
  const std::lock_guard lock(mutex_);
  no_worker_.clear();
  return true;
}

void Queue::worker_ended(const std::string& why) {
  worker_ = nullptr;
  ++failures_;
  metrics_.worker_restarted();
  const auto pause = pause_after(failures_ - 1);
  try_again_ = Clock::now() + pause;
  fmt::print(stderr, "warning: {}; it is started anew{}\n", why,
             pause.count() > 0
                 ? fmt::format(" in {:.2g} s", static_cast<double>(pause.count()) * 1e-3)
                 : "");
  bool is_closed = false;
  {
    const std::lock_guard lock(mutex_);
    is_closed = closed_;
    if (failures_ >= kMostFailures) no_worker_ = "the model cannot be run now: " + why;
  }
  if (failures_ >= kMostFailures || (is_closed && failures_ > 1))
    fail({}, "the model cannot be run now: " + why);
}

void Queue::fail(std::optional<std::size_t> model, const std::string& why) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (model && each.model != *model) return false;
    metrics_.queued(-1);
    each.listener->failed(Error(Fault::job_failed, why));
    return true;
  });
}

void Queue::answer_all(Waiting waiting) {
  metrics_.running(1);
  try {
    try {
      answer(waiting);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      job_failed("{}", error.what());
    }
  } catch (const WorkerLost& lost) {
    metrics_.running(-1);
    if (!worker_->has_begun()) {  // the next worker can still answer it
      const std::lock_guard lock(mutex_);
      metrics_.queued(1);
      waiting_.push_front(std::move(waiting));
    } else
      waiting.listener->failed(
          Error(Fault::job_failed,
                fmt::format("this request is lost, and others are answered by a new process: {}",
                            lost.what())));
    return worker_ended(lost.what());
  } catch (const Error& error) {
    metrics_.running(-1);
    return waiting.listener->failed(error);
  }
  failures_ = 0;
  // Whoever has its answer sees nothing running.
  metrics_.running(-1);
  waiting.listener->done();
}

void Queue::answer(Waiting& waiting) {
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Listener& listener = *waiting.listener;
  for (std::size_t& i = waiting.answered; i < waiting.requests.size() && listener.waits(); ++i) {
    auto last = waiting.since;
    bool first = true;
    metrics_.begins(static_cast<std::int64_t>(waiting.requests[i].ids.size()));
    const TextAnswer answer = worker_->answer(
        waiting.requests[i],
        [&](const TextPiece& piece) {
          failures_ = 0;
          if (piece.token >= 0) {
            const double seconds = seconds_since(std::exchange(last, Clock::now()));
            std::exchange(first, false) ? metrics_.first_token(seconds)
                                        : metrics_.next_token(seconds);
          }
          listener.piece(i, piece);
        },
        [&] { return !listener.waits(); });
    metrics_.prompt(answer.prompt_tokens, answer.cached);
    metrics_.context(worker_->cached_tokens(), worker_->max_context());
    // Whoever has its answer sees what the cache gave it.
    metrics_.prefix_cache(worker_->cache_counts());
    listener.answered(i, answer);
    if (!listener.waits()) metrics_.cancelled();
  }
  metrics_.answered(seconds_since(waiting.since));
}

}  // namespace ac::serve
