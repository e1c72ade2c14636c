// The one room that starts child processes: it builds, judges and times implementations, many at
// once. They are built for the target and, where another device judges them, for that; what is
// known of an earlier run comes from the caches.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "admit/judge.h"
#include "admit/request.h"
#include "base/conversation.h"
#include "base/temporary_folder.h"
#include "base/timeline.h"
#include "base/workers.h"
#include "build/compile.h"
#include "lab/ahead_builds.h"
#include "lab/jobs.h"
#include "lab/measure.h"
#include "search/strategy.h"

namespace ac {

struct Outcome {
  enum class Kind : std::uint8_t {
    admitted,
    not_compiled,
    rejected,
    crashed,
    unjudged,     // others were faster, and no use was made of it
    unavailable,  // it calls a library that is not here, or that has no such algorithm
  };
  Kind kind = Kind::admitted;
  std::string why;         // empty if admitted
  std::string note;        // what the admission leaves open
  double worst_error = 0;  // over its bound
  std::string worst_case;  // scenario and tensor of that
  int scenarios = 0, launches = 0;
  double seconds = 0;       // that building and judging took, when they were done
  bool from_cache = false;  // the verdict
  bool admitted() const { return kind == Kind::admitted; }
};
std::string_view to_string(Outcome::Kind kind);
// What a search makes of it; admitted counts as measured, of what was judged.
search::Verdict verdict_of(Outcome::Kind kind);
Json to_json(const Outcome& outcome);
// Anything else than to_json() makes is an error (bad_input).
Outcome outcome_from_json(const Json& json, const std::string& origin);
Outcome unavailable(const std::string& why);
// The line of a compiler's log that says what is wrong.
std::string error_line(const std::string& log);

// What is left open where the host device stood in for the GPU that the library is for.
constexpr const char* kLibraryStoodIn =
    "library call: admitted by its interface on the host device, to be validated on the GPU";
bool calls_library(const Trial& trial);
Outcome outcome_of(const validate::Verdict& verdict);

// A kernel that was built.
struct Built {
  KernelSource source;
  std::filesystem::path artifact;  // for the target
  int registers = 0, spill_bytes = 0;
};

// What kernels for a device are built for: all that it can.
Target target_of(const DeviceInfo& device);

struct LabOptions {
  Target target;
  // Whether the target's device is in this machine. Its kernels are then judged and timed there;
  // otherwise they are judged on the host device, built from the same source, and not timed.
  bool here = true;
  bool times = true;  // else nothing is timed though the device is here
  unsigned jobs = 1;
  std::filesystem::path verdicts;   // a folder
  std::chrono::seconds limit{120};  // of one admission or race
  // Hears how many kernels of how many are built; of one thread at a time.
  std::function<void(std::size_t done, std::size_t total)> on_built = {};
  Timeline* timeline = nullptr;  // of what is done; null: nobody asks
  std::filesystem::path turns;   // timing_turn.h; empty: nobody else has the device
};

class Verdicts;

class Lab {
 public:
  Lab(KernelBuilder& builder, LabOptions options);
  ~Lab();

  // In the order of the requests. `on_done` hears of each as it is decided.
  std::vector<Outcome> judge(const std::vector<Request>& requests,
                             const std::function<void(std::size_t)>& on_done = {});

  // All that `selection`, which times nothing, asks about if nothing is rejected. Judged at once,
  // questions of several phases fill the cores together, and are known when it runs in earnest.
  std::vector<Request> rehearse(const std::function<void()>& selection);

  // For the target, and for the device that judges. What does not compile is left out of kernels(),
  // with its log kept.
  void build(std::vector<KernelSource> sources);
  // The same for the target, beside whatever is timed meanwhile: build() finds it done.
  void build_ahead(std::vector<KernelSource> sources);

  // All contenders in turn, or why they could not. Kernels must have been built.
  struct Race {
    std::vector<double> microseconds;  // medians
    std::vector<std::vector<double>> samples;
    std::string failed;
  };
  Race race(const StepGraph& step, const std::vector<Contender>& contenders,
            const MeasureOptions& options);
  // A process that has the device to itself, but for judges that are at work, for this job.
  std::unique_ptr<Conversation> converse(Job job);
  // What it answers, as time that timing took.
  ChildResult ask(Conversation& conversation, const std::string& question,
                  std::chrono::seconds limit);

  bool measures() const { return options_.here && options_.times; }
  // Memory of the device that judges may take.
  std::int64_t bytes_of_judges() const;
  // Whether a GPU that is here judges.
  bool on_gpu() const { return options_.here && options_.target.kind == Target::cuda; }
  // Whether what was built for the target runs here.
  bool has_device() const { return options_.here || options_.target.kind == Target::host; }
  // Where the time went, in seconds.
  struct Spent {
    double building = 0, judging = 0, timing = 0;
  };
  const Spent& spent() const { return spent_; }
  const std::map<std::string, Built>& kernels() const { return kernels_; }  // by entry
  // The evidence of this run, whatever files say: whether this trial, as JSON, was admitted, and
  // whether any trial of this purpose with this kernel was.
  bool has_admitted(const Json& trial) const;
  bool has_admitted_kernel(const std::string& entry, Purpose purpose) const {
    return admitted_kernels_.count({entry, purpose}) > 0;
  }
  // Why this kernel was not built; nullptr if it was, or was not asked for.
  const std::string* failure(const std::string& entry) const;

 private:
  using Done = std::function<void(std::size_t, const ChildResult&)>;
  Outcome outcome_of(const ChildResult& result) const;
  void judge_all(const std::vector<Request>& requests, const std::vector<std::size_t>& which,
                 const Done& on_done);
  const std::map<std::string, Artifact>& judged(Purpose purpose) const {
    return purpose == Purpose::races ? judged_for_races_ : judged_;
  }
  KernelFiles judged_files(const Request& request) const;
  bool may_race(const Request& request) const;
  // Empty for what is judged of races, and for what is no such question.
  std::string why_not_raced(const Request& request) const;
  void build_for_races(const std::vector<Request>& requests);
  // Why one of its kernels was not built; nullptr if all were.
  const std::string* failure(const Request& request) const;
  // A process of its own for this job, on the GPU or on the host device.
  std::unique_ptr<Conversation> start_worker(Job job, bool on_gpu = true);
  std::unique_ptr<Conversation> converse_here(Job job) const;
  void decide(const std::vector<Request>& requests, const std::function<bool(Purpose)>& of,
              std::vector<Outcome>& outcomes, const std::function<void(std::size_t)>& on_done);
  // Adds the time from here to the end of a scope.
  class Timer;

  TemporaryFolder jobs_;
  std::atomic<int> next_job_ = 0;
  std::atomic<bool> is_judging_ = false;
  Spent spent_;
  KernelBuilder& builder_;
  LabOptions options_;
  std::map<std::string, Built> kernels_;
  // What is judged, by entry, and what is judged of races.
  std::map<std::string, Artifact> judged_, judged_for_races_;
  std::unique_ptr<KernelBuilder> race_builder_;
  bool races_ = true;                            // whether they are looked for
  std::map<std::string, std::string> failures_;  // by entry: the compiler's log
  std::unique_ptr<Verdicts> verdicts_;
  std::map<std::string, Outcome> decided_;           // in this run, by the verdict's key
  std::optional<std::vector<Request>> rehearsed_{};  // what is asked while nothing is judged
  std::set<std::string> admitted_;                   // digests of trials
  std::set<std::pair<std::string, Purpose>> admitted_kernels_;
  // Where a GPU judges: processes that stay, as opening it takes long, and that do not come of a
  // fork of this one, whose threads go on. Races are judged on the host device.
  Workers judges_, race_judges_, racer_;
  std::mutex deciding_;  // held by decide(), but while it waits for judges
  AheadBuilds ahead_;    // ends before what it uses
};

}  // namespace ac
