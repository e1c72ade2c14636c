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
    const std::string name = name_of(stage, phase);
    const auto began = begin(name);
    auto result = make();
    verify(result, name);
    end(name, began);
    if (shown_.count(stage) > 0) {
      progress_.done();  // its line must not run into the text
      show_(name, print(result));
    }
    return result;
  }

  // A stage that leaves nothing by itself.
  void run_alone(const std::string& stage, const std::string& phase,
                 const std::function<void()>& work) {
    const std::string name = name_of(stage, phase);
    const auto began = begin(name);
    work();
    end(name, began);
  }

  Progress& progress() { return progress_; }
  const std::vector<StageTime>& times() const { return times_; }
  Timeline& timeline() { return timeline_; }

 private:
  static std::string name_of(const std::string& stage, const std::string& phase) {
    return phase.empty() ? stage : phase + ": " + stage;
  }
  Timeline::Clock::time_point begin(const std::string& name);
  void end(const std::string& name, Timeline::Clock::time_point began);

  Progress& progress_;
  const std::set<std::string> shown_;
  const Show show_;
  std::vector<StageTime> times_;
  Timeline timeline_;
};

}  // namespace ac
