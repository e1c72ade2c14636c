// What the server has done, for Prometheus.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prefix/prefix_cache.h"

namespace ac::serve {

// Counts of what was at most each bound.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  void write(const std::string& name, const char* help, std::string& to) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // the last one is of what is above all bounds
  double sum_ = 0;
};

class Metrics {
 public:
  void response(const std::string& route, int status);
  void queued(std::int64_t by);
  void running(std::int64_t by);
  void prompt(std::int64_t tokens, std::int64_t cached);
  void slots(std::int64_t most);  // answers at once
  // An answer to a prompt of so many tokens begins; one ends that has so many with its prompt.
  void begins(std::int64_t prompt);
  void ends(std::int64_t tokens);
  void first_token(double seconds);
  void next_token(double seconds);
  void answered(double seconds);
  void cancelled();
  void worker_restarted();
  void context(std::int64_t tokens, std::int64_t most);  // cached now, and at most
  void prefix_cache(const std::optional<PrefixCounts>& counts);

  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> responses_;
  std::int64_t queued_ = 0, running_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  std::int64_t prompts_ = 0, hits_ = 0, generated_ = 0, cancelled_ = 0;
  std::int64_t context_ = 0, context_most_ = 0, in_use_ = 0, restarts_ = 0;
  std::int64_t slots_ = 1, slots_in_use_ = 0;
  std::optional<PrefixCounts> prefix_cache_;
  Histogram first_{{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}};
  Histogram next_{{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}};
  Histogram whole_{{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}};
};

}  // namespace ac::serve
