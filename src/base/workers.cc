#include "base/workers.h"

#include <algorithm>

namespace ac {
namespace {

struct Busy {
  std::size_t question;
  std::unique_ptr<Conversation> worker;
};

}  // namespace

Workers::Workers(Start start, unsigned at_once)
    : start_(std::move(start)), at_once_(std::max(at_once, 1u)) {}

std::unique_ptr<Conversation> Workers::take() {
  while (!idle_.empty()) {
    std::unique_ptr<Conversation> worker = std::move(idle_.back());
    idle_.pop_back();
    // One of which something is heard unasked has ended meanwhile: that is no question's fault.
    pollfd polled = worker->awaited();
    if (poll(&polled, 1, 0) == 0) return worker;
  }
  return start_();
}

std::vector<ChildResult> Workers::ask(
    const std::vector<std::string>& questions, std::chrono::seconds limit,
    const std::function<void(std::size_t, const ChildResult&)>& on_done) {
  std::vector<ChildResult> results(questions.size());
  std::vector<Busy> busy;
  for (std::size_t next = 0; next < questions.size() || !busy.empty();) {
    while (next < questions.size() && busy.size() < at_once_) {
      busy.push_back({next, take()});
      busy.back().worker->begin(questions[next++], limit);
    }
    std::vector<pollfd> polled;
    auto patience = std::chrono::milliseconds(1000);
    for (const Busy& one : busy) {
      polled.push_back(one.worker->awaited());
      patience = std::min(patience, one.worker->patience());
    }
    if (poll(polled.data(), polled.size(), static_cast<int>(patience.count())) < 0)
      for (pollfd& none : polled) none.revents = 0;
    for (std::size_t i = busy.size(); i-- > 0;) {
      std::optional<ChildResult> result = busy[i].worker->advance(polled[i].revents);
      if (!result) continue;
      const std::size_t question = busy[i].question;
      if (result->ok()) idle_.push_back(std::move(busy[i].worker));
      busy.erase(busy.begin() + static_cast<std::ptrdiff_t>(i));
      results[question] = *std::move(result);
      if (on_done) on_done(question, results[question]);
    }
  }
  return results;
}

void Workers::dismiss() {
  for (const std::unique_ptr<Conversation>& worker : idle_) worker->stop();
  idle_.clear();
}

}  // namespace ac
