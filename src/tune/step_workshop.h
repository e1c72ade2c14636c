// Builds, admits and times whole steps on the device at hand: what a search over a step's schedules
// and the recording of them have in common. One process keeps the weights and times one schedule
// after the other; when a kernel brings it down, the next schedule finds another one.
#pragma once

#include "base/conversation.h"
#include "base/progress.h"
#include "lab/step_bench.h"
#include "lab/trial_package.h"
#include "tune/step_advice.h"
#include "tune/step_space.h"
#include "tune/workshop.h"

namespace ac::tune {

struct StepOptions : WorkshopOptions {
  StepSpaceOptions space;
  bool admit_all = false;  // what the gate does not admit is no choice; else judged when asked for
  // Of a package: candidates ("": the fallback) by signature, which are choices in any case.
  std::map<std::string, std::string> selected;
  Advisor* advisor = nullptr;  // its candidates are choices in turn with the best; null: none
  int rounds = 3;
  int repeats = 0;        // of a step in one sample; 0: as the engine runs it
  bool hold_all = false;  // what any cut that was met may need is loaded at once
};

class StepWorkshop {
 public:
  // `program`: of which steps are timed; nothing: one is made up.
  StepWorkshop(const Model& model, const StepOptions& options, KernelBuilder& builder,
               std::optional<Program> program, Progress& progress);

  const StepSpace& space() const { return *space_; }
  const StepAdvice& advice() const { return advice_; }
  const StepGraph& step() const { return workshop_->step(); }
  const Plans& plans() const { return plans_; }
  // Of the step, without names: equal steps of different models share it.
  const std::string& signature() const { return signature_; }

  // Samples, or why there are none.
  TimedPoint time(int point);
  // Of several in turn; nothing if one of them cannot be timed.
  std::vector<std::vector<double>> race(const std::vector<int>& points, int rounds);
  // Times a point's step as it is and without each of its sites, in turn. `without` has the names
  // of sites. Nothing if a step cannot be timed.
  struct SiteSamples {
    std::vector<double> whole;
    std::map<std::string, std::vector<double>> without;
  };
  std::optional<SiteSamples> time_sites(int point, int rounds);
  // Why the gate does not admit one of the point's candidates; empty if it admits all.
  std::string why_not(int point);
  // Of all kernels of a point.
  std::vector<KernelSource> sources(int point) const;

  // A candidate that is no choice, or no longer one.
  struct Failure {
    std::string signature, plan;
    double predicted = 0;
    search::Verdict verdict = search::Verdict::failed;
    std::string why;
    std::vector<KernelSource> sources;
  };
  // Since they were last asked for.
  std::vector<Failure> take_failures() { return std::exchange(failures_, {}); }

 private:
  // What could be choices, best first, and how many of them are wanted.
  struct Order {
    std::vector<int> candidates;
    std::size_t wanted = 0;
    bool with_fallback = false;
  };
  Order order(const CoverPart& part, std::size_t most);
  void prepare();
  std::vector<int> choices(const CoverPart& part, std::size_t most);
  bool is_usable(const CoverPart& part, int candidate);
  const std::string& verdict(const CoverPart& part, int candidate);
  void judge(const std::vector<std::pair<CoverPart, int>>& candidates);
  Subject subject_of(const CoverPart& part) const;
  Implemented implement(const CoverPart& part, int candidate) const;
  bool hold(int point);
  void write_package();
  // The launches of a point's step, without those of the site with this name; empty: with all.
  StepBench::Step spans(int point, const std::string& without = {}) const;
  // Makes sure that the package that is timed has all launches of these points.
  void load(const std::vector<int>& points);
  ChildResult ask_steps(const std::vector<StepBench::Step>& steps, int rounds);
  ChildResult ask(const std::vector<int>& points, int rounds);

  const StepOptions options_;
  Progress& progress_;
  std::optional<Workshop> workshop_;
  Plans plans_;
  Program program_;
  UseDef uses_;
  std::string signature_;
  StepAdvice advice_;
  std::unique_ptr<StepSpace> space_;
  std::vector<Failure> failures_;
  std::map<std::pair<int, int>, std::string> verdicts_;  // by space and candidate; empty: admitted

  // What the package that is timed holds, by part and candidate, and where in it.
  struct Held {
    int position = 0;  // of the part's last node
    Implemented made;
    bool is_built = false;
    Span span;
  };
  std::map<std::pair<std::string, int>, Held> held_;
  Implemented ending_;
  KernelSource random_;
  std::unique_ptr<TrialPackage> package_;
  std::unique_ptr<Conversation> child_;
};

}  // namespace ac::tune
