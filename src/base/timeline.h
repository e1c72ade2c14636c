// When what was done, so that one sees what waited for what: lanes of spans, as chrome://tracing
// and ui.perfetto.dev show them.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"

namespace ac {

// May be used from several threads.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    std::string lane;  // "stages", "judging": spans of one lane may overlap
    std::string what;
    double began = 0, seconds = 0;  // since the timeline was made
    std::size_t count = 1;          // of things that were done in it
  };

  Timeline() : start_(Clock::now()) {}

  void add(const std::string& lane, const std::string& what, Clock::time_point began,
           std::size_t count = 1);
  // Of something that has ended now, after so many seconds.
  void add_ended(const std::string& lane, const std::string& what, double seconds);

  std::vector<Span> spans() const;
  Json chrome_trace() const;

 private:
  const Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
};

}  // namespace ac
