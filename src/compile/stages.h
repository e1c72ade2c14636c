// How every stage of the pipeline is run: told to whoever watches, timed, its result verified, and
// shown to whoever asked for it (compile --dump).
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/timeline.h"

namespace ac {

struct StageTime {
  std::string stage;  // "normalise", "decode: regions"
  double seconds = 0;
};

class Stages {
 public:
  // What can be shown.
  static const std::vector<std::string>& names();

  // `show` is called with the results of the stages in `shown`, as text.
  using Show = std::function<void(const std::string& stage, const std::string& text)>;
  explicit Stages(Progress& progress, std::set<std::string> shown = {}, Show show = {});

  // What `make` returns must have a verify(result, origin). `phase` is the name of one, or nothing
  // for a stage that all share.
  template <class Make, class Print>
  auto run(const std::string& stage, Make&& make, Print&& print, const std::string& phase = {}) {
    const std::string name = phase.empty() ? stage : phase + ": " + stage;
    progress_.stage(name);
    const auto began = std::chrono::steady_clock::now();
    auto result = make();
    verify(result, name);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    times_.push_back({name, took.count()});
    timeline_.add("stages", name, began);
    if (shown_.count(stage) > 0) {
      progress_.done();  // its line must not run into the text
      show_(name, print(result));
    }
    return result;
  }

  Progress& progress() { return progress_; }
  const std::vector<StageTime>& times() const { return times_; }
  Timeline& timeline() { return timeline_; }

 private:
  Progress& progress_;
  const std::set<std::string> shown_;
  const Show show_;
  std::vector<StageTime> times_;
  Timeline timeline_;
};

}  // namespace ac
