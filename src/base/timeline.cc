#include "base/timeline.h"

#include <algorithm>
#include <map>

namespace ac {
namespace {

double seconds_between(Timeline::Clock::time_point from, Timeline::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void Timeline::add(const std::string& lane, const std::string& what, Clock::time_point began,
                   std::size_t count) {
  const double since = seconds_between(began, Clock::now());
  const std::lock_guard lock(mutex_);
  spans_.push_back({lane, what, seconds_between(start_, began), since, count});
}

void Timeline::add_ended(const std::string& lane, const std::string& what, double seconds) {
  const double now = seconds_between(start_, Clock::now());
  const std::lock_guard lock(mutex_);
  spans_.push_back({lane, what, std::max(now - seconds, 0.0), seconds, 1});
}

std::vector<Timeline::Span> Timeline::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

Json Timeline::chrome_trace() const {
  std::vector<Span> spans = this->spans();
  std::ranges::stable_sort(spans, {}, &Span::began);
  Json events = Json::array();
  // A lane's spans that overlap get rows of their own: the first row that is free by then.
  std::map<std::string, std::vector<double>> ends;
  std::map<std::string, int> numbers;
  for (const Span& span : spans) {
    const int lane = numbers.emplace(span.lane, static_cast<int>(numbers.size())).first->second;
    std::vector<double>& rows = ends[span.lane];
    auto row = std::ranges::find_if(rows, [&](double end) { return end <= span.began; });
    if (row == rows.end()) row = rows.insert(rows.end(), 0);
    *row = span.began + span.seconds;
    events.push_back({{"name", span.what},
                      {"cat", span.lane},
                      {"ph", "X"},
                      {"ts", span.began * 1e6},
                      {"dur", span.seconds * 1e6},
                      {"pid", lane},
                      {"tid", row - rows.begin()},
                      {"args", {{"count", span.count}}}});
  }
  for (const auto& [name, lane] : numbers)
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", lane}, {"args", {{"name", name}}}});
  return {{"traceEvents", std::move(events)}};
}

}  // namespace ac
