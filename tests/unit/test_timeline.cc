// Timelines: spans as they came, in rows where they overlap.
#include "base/timeline.h"

#include <doctest/doctest.h>

#include <set>

using namespace ac;

TEST_CASE("timeline: spans of a lane that overlap lie in different rows") {
  Timeline timeline;
  const auto now = Timeline::Clock::now();
  using namespace std::chrono_literals;
  timeline.add("lab", "build", now - 2s, 12);
  timeline.add("lab", "judge", now - 1s, 3);
  timeline.add_ended("judging", "gemv", 0.5);
  const std::vector<Timeline::Span> spans = timeline.spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].seconds >= 2);
  CHECK(spans[2].seconds == 0.5);
  std::set<Json> rows;
  int named = 0;
  const Json trace = timeline.chrome_trace();
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      ++named;
      continue;
    }
    CHECK(event.at("ph") == "X");
    if (event.at("cat") == "lab") rows.insert(event.at("tid"));
    if (event.at("name") == "build") CHECK(event.at("args").at("count") == 12);
  }
  CHECK(rows.size() == 2);
  CHECK(named == 2);
}
