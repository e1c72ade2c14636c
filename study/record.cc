#include "study/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "study/table_file.h"

namespace ac::study {
namespace {

constexpr std::size_t kFinalists = 4;  // judged at once, when only the fastest are

class Recorder {
 public:
  Recorder(const Model& model, const RecordOptions& options, KernelBuilder& builder,
           const std::filesystem::path& to, Progress& progress)
      : options_(options),
        builder_(builder),
        progress_(progress),
        workshop_(model, options, builder),
        file_(to, common_header(options, builder, workshop_.step().graph.name)) {}

  Recorded run() {
    const std::vector<tune::Subject> all = workshop_.subjects();
    for (std::size_t i = 0; i < all.size(); ++i) {
      progress_.stage(fmt::format("region {} of {}: {}", i + 1, all.size(), all[i].description()));
      const int region = region_of(all[i]);
      if (ahead_.valid()) ahead_.get();
      if (i + 1 < all.size() && options_.device.sm > 0) build_ahead(all[i + 1]);
      record_points(all[i], region);
      if (!options_.admit_all) admit_fastest(all[i], region);
      const TimedTable& table = file_.table(region);
      ++recorded_.regions;
      recorded_.points += table.points.size();
      for (const tune::TimedPoint& point : table.points) recorded_.measured += point.outcome().ok();
    }
    progress_.done();
    return recorded_;
  }

 private:
  int region_of(const tune::Subject& subject) {
    return file_.region(subject.space->signature, subject.description(), subject.uses);
  }

  std::vector<const Candidate*> unrecorded(const tune::Subject& subject, int region) {
    std::vector<const Candidate*> todo;
    for (const Candidate& candidate : subject.space->candidates)
      if (!file_.table(region).find(candidate.id)) todo.push_back(&candidate);
    return todo;
  }

  // The kernels of a region, while those of the one before it are timed: on a GPU that is no work
  // for the processor.
  void build_ahead(const tune::Subject& subject) {
    std::vector<KernelSource> sources;
    for (const Candidate* candidate : unrecorded(subject, region_of(subject)))
      for (KernelSource& source : workshop_.generate_for(subject, *candidate).sources)
        sources.push_back(std::move(source));
    ahead_ = std::async(std::launch::async, [this, sources = std::move(sources)] {
      builder_.build_all(sources, target_of(options_.device));
    });
  }

  void record_points(const tune::Subject& subject, int region) {
    const std::vector<const Candidate*> todo = unrecorded(subject, region);
    for (std::size_t at = 0; at < todo.size(); at += options_.batch) {
      const std::size_t end = std::min(todo.size(), at + options_.batch);
      const std::vector<const Candidate*> batch(todo.begin() + static_cast<std::ptrdiff_t>(at),
                                                todo.begin() + static_cast<std::ptrdiff_t>(end));
      tune::Workshop::Batch tried = workshop_.attempt(subject, batch, options_.admit_all);
      for (const std::vector<double>& samples : tried.fallbacks)
        file_.append_fallback(region, samples);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        tune::TimedPoint& point = tried.points[i];
        log(subject, *batch[i], point);
        if (point.verdict == search::Verdict::failed)
          progress_.note(fmt::format("{}: failed ({})", point.point.id, point.why));
        file_.append(region, std::move(point));
      }
      recorded_.new_points += batch.size();
      const std::optional<double> best = file_.table(region).optimum();
      progress_.step(end, todo.size(), best ? fmt::format("best {:.2f} us", *best) : "");
    }
  }

  void log(const tune::Subject& subject, const Candidate& candidate,
           const tune::TimedPoint& point) {
    if (!options_.log) return;
    tuning::TimedAttempt tried;
    tried.key.region = subject.space->signature;
    tried.key.plan = candidate.id;
    tried.key.setting = tuning::setting_of(options_.tokens, options_.context);
    tried.verdict = point.verdict;
    const bool is_ok = point.verdict == search::Verdict::measured;
    tried.why = is_ok && !point.was_admitted ? tuning::kUnjudged : point.why;
    if (is_ok) tried.samples = point.samples;
    tried.predicted = candidate.cost.microseconds;
    options_.log->add(std::move(tried), workshop_.generate_for(subject, candidate).sources);
  }

  // So that the best that a table has is one that computes what it should.
  void admit_fastest(const tune::Subject& subject, int region) {
    std::vector<const tune::TimedPoint*> fastest;
    for (const tune::TimedPoint& point : file_.table(region).points)
      if (point.outcome().ok()) fastest.push_back(&point);
    std::sort(fastest.begin(), fastest.end(),
              [](const tune::TimedPoint* a, const tune::TimedPoint* b) {
                return a->outcome().microseconds < b->outcome().microseconds;
              });
    std::vector<tune::TimedPoint> judged;
    for (std::size_t at = 0; at < fastest.size(); at += kFinalists) {
      std::vector<const Candidate*> batch;
      std::vector<tune::TimedPoint> points;
      for (std::size_t i = at; i < std::min(fastest.size(), at + kFinalists); ++i) {
        if (fastest[i]->was_admitted) return;
        for (const Candidate& candidate : subject.space->candidates)
          if (candidate.id == fastest[i]->point.id) {
            batch.push_back(&candidate);
            points.push_back(*fastest[i]);
          }
      }
      workshop_.judge(subject, batch, points);
      bool found = false;
      for (std::size_t i = 0; i < batch.size(); ++i) {
        tune::TimedPoint& point = points[i];
        found |= point.verdict == search::Verdict::measured;
        point.was_admitted = true;
        log(subject, *batch[i], point);
        judged.push_back(std::move(point));
      }
      if (found) break;
    }
    for (tune::TimedPoint& point : judged) file_.append(region, std::move(point));
  }

  const RecordOptions& options_;
  KernelBuilder& builder_;
  Progress& progress_;
  tune::Workshop workshop_;
  TableFile file_;
  Recorded recorded_;
  std::future<void> ahead_;
};

}  // namespace

Json common_header(const RecordOptions& options, KernelBuilder& builder, const std::string& model) {
  Json json{{"study", 1}};
  json.update(options.header);
  json["toolkit"] = builder.compiler(target_of(options.device));
  json["model"] = model;
  if (options.dtype) json["dtype"] = torch_name(*options.dtype);
  json["target"] = options.device.target;
  json["tokens"] = options.tokens;
  json["context"] = options.context;
  json["rounds"] = options.rounds;
  json["seconds"] = options.seconds;
  return json;
}

Recorded record(const Model& model, const RecordOptions& options, KernelBuilder& builder,
                const std::filesystem::path& to, Progress& progress) {
  return Recorder(model, options, builder, to, progress).run();
}

}  // namespace ac::study
