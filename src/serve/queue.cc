#include "serve/queue.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <set>
#include <utility>

#include "base/print_stderr.h"

namespace ac::serve {
namespace {

constexpr auto kIdle = std::chrono::milliseconds(300);
// Whoever waits for an answer is asked so often whether it still does, and so often it is seen that
// another one has come whom there is a slot for.
constexpr std::chrono::milliseconds kAskAgain{50}, kLookAgain{3};
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
    if ((*at)->listener->waits()) {
      ++at;
      continue;
    }
    (*at)->listener->done();
    metrics_.queued(-1);
    metrics_.cancelled();
    at = waiting_.erase(at);
  }
  if (waiting_.size() >= most_waiting_) return Added::full;
  waiting_.push_back(std::make_shared<Waiting>(
      Waiting{model, std::move(requests), std::move(listener), Clock::now()}));
  for (std::size_t i = 0; i < waiting_.back()->requests.size(); ++i)
    waiting_.back()->left.push_back(i);
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
  std::unique_ptr<Worker> worker = start_(model, pieces_[model]);
  worker->wait_until_loaded();
  pieces_[model] = worker->piece();
  metrics_.context(0, worker->max_context() * static_cast<std::int64_t>(slots_));
  {
    const std::lock_guard lock(mutex_);
    fingerprints_[model] = worker->fingerprint();
  }
  worker_ = std::move(worker);
  model_ = model;
  last_good_ = model;
}

void Queue::work(const std::function<bool()>& between) {
  for (bool renews = false;;) {
    const bool idle = under_way_.empty();
    if (between && (idle || std::exchange(has_answered_, false))) renews |= between();
    if (idle && std::exchange(renews, false)) {
      worker_ = nullptr;
      wait_again({open_.begin(), open_.end()});
      open_.clear();
    }
    try {
      if (idle && worker_) {
        while (worker_->hear(std::chrono::milliseconds(0))) {
        }
        metrics_.prefix_cache(worker_->cache_counts());
      }
      if (!renews) begin();
      if (!under_way_.empty()) {
        hear();
        continue;
      }
    } catch (const WorkerLost& lost) {
      lose_worker(lost.what());
    }
    std::unique_lock lock(mutex_);
    if (closed_ && waiting_.empty()) break;
    const bool is_patient = try_again_ > Clock::now();
    changed_.wait_for(lock, kIdle, [&] { return !is_patient && (closed_ || !waiting_.empty()); });
  }
  worker_ = nullptr;
}

std::shared_ptr<Queue::Waiting> Queue::next() {
  std::optional<std::size_t> wanted = last_good_;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty())
      wanted = waiting_.front()->model;
    else if (closed_)
      return nullptr;
  }
  if (!wanted || (!under_way_.empty() && *wanted != model_) || !has_worker_for(*wanted))
    return nullptr;
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || waiting_.front()->model != model_) return nullptr;
  std::shared_ptr<Waiting> first = std::move(waiting_.front());
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
      print_stderr("warning: a model cannot be loaded: {}\n", error.what());
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
  print_stderr("warning: {}; it is started anew{}\n", why,
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
  std::erase_if(waiting_, [&](const std::shared_ptr<Waiting>& each) {
    if (model && each->model != *model) return false;
    metrics_.queued(-1);
    each->listener->failed(Error(Fault::job_failed, why));
    return true;
  });
}

void Queue::begin() {
  while (under_way_.size() < slots_) {
    if (open_.empty()) {
      auto first = next();
      if (!first) return;
      metrics_.running(1);
      open_.push_back(std::move(first));
    }
    const std::shared_ptr<Waiting> of = open_.front();
    if (of->left.empty() || !of->listener->waits()) {
      of->left.clear();
      open_.pop_front();
      end(*of);
      continue;
    }
    const std::size_t answer = of->left.front();
    of->left.pop_front();
    ++of->under_way;
    const TextRequest& request = of->requests[answer];
    const auto prompt = static_cast<std::int64_t>(request.ids.size());
    metrics_.begins(prompt);
    under_way_[++last_number_] = {.of = of, .answer = answer, .last = of->since, .tokens = prompt};
    worker_->ask(request, last_number_);
    if (of->left.empty()) open_.pop_front();
  }
}

void Queue::hear() {
  stop_unwanted();
  const bool is_room = under_way_.size() < slots_;
  const auto message = worker_->hear(is_room ? kLookAgain : kAskAgain);
  if (!message) return;
  if (const auto* begun = std::get_if<Begun>(&*message)) take(begun->number, *message);
  if (const auto* piece = std::get_if<Piece>(&*message)) take(piece->number, *message);
  if (const auto* answered = std::get_if<Answered>(&*message)) take(answered->number, *message);
  if (const auto* failed = std::get_if<Failed>(&*message)) take(failed->number, *message);
}

void Queue::stop_unwanted() {
  for (auto& [number, request] : under_way_) {
    const Listener& listener = *request.of->listener;
    if (request.stops ||
        (!request.of->failure && listener.waits() && listener.wants(request.answer)))
      continue;
    request.stops = true;
    worker_->stop(number);
  }
}

void Queue::take(std::uint64_t number, const FromWorker& message) {
  const auto known = under_way_.find(number);
  if (known == under_way_.end()) return;
  UnderWay& request = known->second;
  request.begun = true;
  const auto* const piece = std::get_if<Piece>(&message);
  const auto* const answered = std::get_if<Answered>(&message);
  const auto* const failed = std::get_if<Failed>(&message);
  std::optional<Error> failure;
  try {
    if (piece) take(request, piece->piece);
    if (answered) take(request, answered->answer);
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Fault::job_failed, error.what());
  }
  if (failed) failure = Error(failed->fault, failed->message);
  if (failure && !request.of->failure) request.of->failure = failure;
  if (answered || failed) end(number);
}

void Queue::take(UnderWay& request, const TextPiece& piece) {
  if (request.stops) {
    request.missed = true;
    return;
  }
  failures_ = 0;
  if (piece.token >= 0) {
    const auto now = Clock::now();
    const double seconds =
        std::chrono::duration<double>(now - std::exchange(request.last, now)).count();
    std::exchange(request.has_token, true) ? metrics_.next_token(seconds)
                                           : metrics_.first_token(seconds);
    ++request.tokens;
  }
  request.of->listener->piece(request.answer, piece);
}

void Queue::take(UnderWay& request, TextAnswer answer) {
  if (request.stops && (request.missed || answer.finish != "stop"))
    answer.finish = "interrupted", answer.stopped_by.clear();
  metrics_.prompt(answer.prompt_tokens, answer.cached);
  metrics_.context(worker_->cached_tokens(),
                   worker_->max_context() * static_cast<std::int64_t>(slots_));
  // Whoever has its answer sees what the cache gave it.
  metrics_.prefix_cache(worker_->cache_counts());
  if (!request.of->failure) request.of->listener->answered(request.answer, answer);
}

void Queue::end(std::uint64_t number) {
  const auto known = under_way_.find(number);
  const std::shared_ptr<Waiting> of = known->second.of;
  metrics_.ends(known->second.tokens);
  under_way_.erase(known);
  has_answered_ = true;
  --of->under_way;
  if (of->failure || !of->listener->waits()) {
    of->left.clear();
    std::erase(open_, of);
  }
  if (of->left.empty()) end(*of);
}

void Queue::end(Waiting& all) {
  if (all.under_way > 0) return;
  // Whoever has its answer sees nothing running.
  metrics_.running(-1);
  if (all.failure) return all.listener->failed(*all.failure);
  failures_ = 0;
  if (!all.listener->waits()) metrics_.cancelled();
  metrics_.answered(std::chrono::duration<double>(Clock::now() - all.since).count());
  all.listener->done();
}

void Queue::lose_worker(const std::string& why) {
  std::set<std::shared_ptr<Waiting>> all(open_.begin(), open_.end());
  for (auto& [number, request] : std::exchange(under_way_, {})) {
    Waiting& of = *request.of;
    metrics_.ends(request.tokens);
    --of.under_way;
    if (request.begun && !of.failure)
      of.failure = Error(
          Fault::job_failed,
          fmt::format("this request is lost, and others are answered by a new process: {}", why));
    of.left.push_back(request.answer);
    all.insert(request.of);
  }
  open_.clear();
  std::vector<std::shared_ptr<Waiting>> again;
  for (const auto& each : all) {
    if (each->failure) {
      end(*each);
      continue;
    }
    std::ranges::sort(each->left);
    again.push_back(each);
  }
  wait_again(std::move(again));
  worker_ended(why);
}

void Queue::wait_again(std::vector<std::shared_ptr<Waiting>> all) {
  std::ranges::sort(all, std::greater(), &Waiting::since);
  for (const auto& each : all) {
    metrics_.running(-1);
    metrics_.queued(1);
    const std::lock_guard lock(mutex_);
    waiting_.push_front(each);
  }
}

}  // namespace ac::serve
