// Builds, admits and times candidates of a model's decode step on the device at hand: what
// recordings and tuning have in common.
#pragma once

#include "capture/model.h"
#include "families/list.h"
#include "lab/lab.h"
#include "plan/planner.h"
#include "tune/timed_point.h"

namespace ac::tune {

struct WorkshopOptions {
  DeviceInfo device;  // which is in this machine
  std::size_t max_candidates = 256;
  // Parts of the signatures or descriptions of the regions to look at; none: all.
  std::vector<std::string> regions;
  bool cover_only = false;      // only the regions that the step is cut into by prediction
  std::int64_t tokens = 1;      // of a step: more than one are a prompt's
  std::int64_t context = 1024;  // cached tokens
  int rounds = 5;
  double seconds = 0.005;  // of one round of one point, about
  unsigned jobs = 1;
  std::filesystem::path cache;
  std::optional<DType> dtype;  // to compute in; nothing: what the model says
  KvStorage kv = KvStorage::elements;
  std::vector<StateSpec> states;  // none: with room for 4096 tokens
};

// A region, or what chooses the token, with its space.
struct Subject {
  std::optional<Wanted> wanted;
  const Space* space = nullptr;
  int uses = 0;
  std::string description() const;
};

class Workshop {
 public:
  // The options must outlive it.
  Workshop(const Model& model, const WorkshopOptions& options, KernelBuilder& builder);

  const StepGraph& step() const { return step_; }
  const Regions& regions() const { return regions_; }
  const Plans& plans() const { return plans_; }
  const std::vector<StateSpec>& states() const { return states_; }
  const Setting& setting() const { return setting_; }
  Lab& lab() { return lab_; }
  // With two candidates or more. None is an error (wrong_usage): no region has what was asked for.
  std::vector<Subject> subjects() const;
  Generated generate_for(const Subject& subject, const Candidate& candidate) const {
    return ac::generate_for(step_, subject.wanted, candidate.choice, plans_.options.at, setting_);
  }

  struct Batch {
    std::vector<TimedPoint> points;              // in the order of the candidates
    std::vector<std::vector<double>> fallbacks;  // samples of each race
  };
  // Built and, if `admit`, judged in parallel; what is left races in turn.
  Batch attempt(const Subject& subject, const std::vector<const Candidate*>& candidates,
                bool admit);
  // What is not admitted gets another verdict.
  void judge(const Subject& subject, const std::vector<const Candidate*>& candidates,
             std::vector<TimedPoint>& points);
  // The same of candidates of several regions at once.
  void judge(const std::vector<std::pair<Subject, const Candidate*>>& candidates,
             std::vector<TimedPoint>& points);

 private:
  // The log of a kernel that did not build, or null if all did.
  const std::string* log_of_failure(const Generated& made) const;
  void race(Batch& batch, const std::vector<Generated>& made,
            const std::vector<std::size_t>& racers, const Generated* fallback_made);

  const WorkshopOptions& options_;
  Lab lab_;
  const StepGraph step_;
  const Regions regions_;
  const Plans plans_;
  std::vector<StateSpec> states_;
  Setting setting_;
};

search::Point point_of(const Candidate& candidate);

// A plan's fields: numbers, and names of ways.
std::vector<search::Field> fields_of(const Choice& choice);

}  // namespace ac::tune
