#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace ac::serve {
namespace {

void describe(const char* name, const char* type, const char* help, std::string& to) {
  to += fmt::format("# HELP agentcompile_{0} {2}\n# TYPE agentcompile_{0} {1}\n", name, type, help);
}

template <class Value>
void one(const char* name, const char* type, const char* help, Value value, std::string& to) {
  describe(name, type, help, to);
  to += fmt::format("agentcompile_{} {}\n", name, value);
}

void write(const PrefixCounts& counts, std::string& to) {
  using Place = PrefixCounts::Place;
  const auto each = [&](const char* name, const char* type, const char* help, auto Place::* value) {
    describe(name, type, help, to);
    for (std::size_t i = 0; i < counts.places.size(); ++i)
      to += fmt::format("agentcompile_{}{{place=\"{}\"}} {}\n", name, PrefixCounts::kPlaces[i],
                        counts.places[i].*value);
  };
  each("prefix_cache_tokens_total", "counter", "Tokens whose states were brought back.",
       &Place::tokens);
  each("prefix_cache_bytes", "gauge", "Bytes of states that are kept.", &Place::bytes);
  each("prefix_cache_room_bytes", "gauge", "Bytes that there is room for.", &Place::room);
  each("prefix_cache_evictions_total", "counter", "Pieces that had to go.", &Place::evictions);
  one("prefix_cache_damaged_files_total", "counter", "Files that could not be used.",
      counts.damaged_files, to);
}

}  // namespace

void Histogram::add(double value) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(const std::string& name, const char* help, std::string& to) const {
  describe(name.c_str(), "histogram", help, to);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    to += fmt::format("agentcompile_{}_bucket{{le=\"{}\"}} {}\n", name,
                      i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf", count);
  }
  to += fmt::format("agentcompile_{0}_sum {1}\nagentcompile_{0}_count {2}\n", name, sum_, count);
}

void Metrics::response(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{route, status}];
}
void Metrics::queued(std::int64_t by) {
  const std::lock_guard lock(mutex_);
  queued_ += by;
}
void Metrics::running(std::int64_t by) {
  const std::lock_guard lock(mutex_);
  running_ += by;
}
void Metrics::slots(std::int64_t most) {
  const std::lock_guard lock(mutex_);
  slots_ = most;
}
void Metrics::prompt(std::int64_t tokens, std::int64_t cached) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens, cached_tokens_ += cached;
  ++prompts_, hits_ += cached > 0;
}
void Metrics::begins(std::int64_t prompt) {
  const std::lock_guard lock(mutex_);
  in_use_ += prompt, ++slots_in_use_;
}
void Metrics::ends(std::int64_t tokens) {
  const std::lock_guard lock(mutex_);
  in_use_ -= tokens, --slots_in_use_;
}
void Metrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  ++generated_, ++in_use_;
  first_.add(seconds);
}
void Metrics::next_token(double seconds) {
  const std::lock_guard lock(mutex_);
  ++generated_, ++in_use_;
  next_.add(seconds);
}
void Metrics::answered(double seconds) {
  const std::lock_guard lock(mutex_);
  whole_.add(seconds);
}
void Metrics::cancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}
void Metrics::worker_restarted() {
  const std::lock_guard lock(mutex_);
  ++restarts_;
}
void Metrics::context(std::int64_t tokens, std::int64_t most) {
  const std::lock_guard lock(mutex_);
  context_ = tokens, context_most_ = most;
}

void Metrics::prefix_cache(const std::optional<PrefixCounts>& counts) {
  const std::lock_guard lock(mutex_);
  prefix_cache_ = counts;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string to;
  describe("responses_total", "counter", "Responses by route and status.", to);
  for (const auto& [key, count] : responses_)
    to += fmt::format("agentcompile_responses_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first,
                      key.second, count);
  one("requests_queued", "gauge", "Requests that wait for the engine.", queued_, to);
  one("requests_running", "gauge", "Requests that the engine works on.", running_, to);
  one("slots", "gauge", "Answers that can be written at once.", slots_, to);
  one("slots_in_use", "gauge", "Answers that are being written.", slots_in_use_, to);
  one("requests_cancelled_total", "counter", "Requests whose client left before the answer's end.",
      cancelled_, to);
  one("worker_restarts_total", "counter", "Workers that ended and were started anew.", restarts_,
      to);
  one("prompt_tokens_total", "counter", "Tokens of prompts.", prompt_tokens_, to);
  one("prompt_tokens_cached_total", "counter", "Tokens of prompts that were not run again.",
      cached_tokens_, to);
  one("prompts_total", "counter", "Prompts.", prompts_, to);
  one("prefix_hits_total", "counter", "Prompts of which some tokens were not run again.", hits_,
      to);
  one("prefix_misses_total", "counter", "Prompts of which all tokens were run.", prompts_ - hits_,
      to);
  if (prefix_cache_) write(*prefix_cache_, to);
  one("generated_tokens_total", "counter", "Tokens that were generated.", generated_, to);
  one("kv_tokens", "gauge", "Tokens whose states are kept.", context_, to);
  const auto share = [&](std::int64_t tokens) {
    return context_most_ > 0 ? static_cast<double>(tokens) / static_cast<double>(context_most_)
                             : 0.0;
  };
  one("kv_usage_ratio", "gauge", "The same as a share of the context.", share(context_), to);
  one("kv_in_use_ratio", "gauge",
      "Share of the context that the requests have that the engine works on; 0: there are none.",
      share(in_use_), to);
  first_.write("time_to_first_token_seconds", "From the request to the first token.", to);
  next_.write("time_between_tokens_seconds", "From one token to the next.", to);
  whole_.write("request_seconds", "From the request to the end of its answers.", to);
  return to;
}

}  // namespace ac::serve
