#include "compile/stages.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ac {

const std::vector<std::string>& Stages::names() {
  static const std::vector<std::string> names = {"capture", "normalise",  "incrementalise",
                                                 "regions", "candidates", "selection",
                                                 "program", "check"};
  return names;
}

Stages::Stages(Progress& progress, std::set<std::string> shown, Show show)
    : progress_(progress), shown_(std::move(shown)), show_(std::move(show)) {
  for (const std::string& stage : shown_)
    if (std::ranges::find(names(), stage) == names().end())
      wrong_usage("{} is no stage that can be shown; these are: {}", quote(stage),
                  fmt::join(names(), ", "));
}

Timeline::Clock::time_point Stages::begin(const std::string& name) {
  progress_.stage(name);
  return Timeline::Clock::now();
}

void Stages::end(const std::string& name, Timeline::Clock::time_point began) {
  const std::chrono::duration<double> took = Timeline::Clock::now() - began;
  times_.push_back({name, took.count()});
  timeline_.add("stages", name, began);
}

}  // namespace ac
