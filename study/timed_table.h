// Recorded spaces: every point of a region's space, or of a step's, with what became of it when it
// was built, admitted and timed. A file of JSON lines:
//   {"study": 1, "device": ..., "driver": ..., "toolkit": ..., "commit": ..., "command": ...,
//    "date": ..., "model": ..., ...}     first; again where a later recording went on with the file
//   {"region": 0, "signature": ..., "description": ..., "uses": 16}    before the region's points
//   {"region": 0, "plan": id, "family": ..., "fields": {...}, "predicted_us": ...,
//    "outcome": "measured", "samples_us": [...]}                        a point
//   {"region": 0, "fallback": true, "samples_us": [...]}                with each batch that was
//   timed
//   {"region": 0, "reference": id, "samples_us": [...]}                that point, timed again;
//   "attempt_seconds": median of what it took to time each of the points since the last reference
// Of a step whose schedules are too many to list:
//   {"region": 0, "space": {"fusions": 8, "sites": [{"site": ..., "uses": ..., "choices": [...]}],
//    "cuts": [{"fusions": [...], "there": [...]}]}}      once, before its points
//   {"region": 0, "schedule": [3, -1, 0, ...], "by": "random", "outcome": ..., "samples_us": [...]}
//                                     a point: the choice of each site; -1 for one that is not
//                                     there
// A point of a listed step has "parts": [{"site": ..., "family": ..., "fields": {...}}, ...] for
// its family and fields. A point that was never judged says "admission": "skipped". A later line of
// a point replaces an earlier one, so that a recording only ever appends.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "study/step_sites.h"
#include "tune/timed_point.h"

namespace ac::study {

struct TimedTable {
  int region = 0;
  std::string signature, description;
  double uses = 1;               // times that a step runs it
  std::vector<double> fallback;  // microseconds; empty if there is none
  std::vector<tune::TimedPoint> points;
  std::vector<std::vector<double>> references;  // of one point, each time that it was timed
  std::vector<double> attempt_seconds;          // to time a point; empty: not recorded
  std::shared_ptr<const StepSites> sites;       // where points are too many to list; else null
  // Then, of each point, the choices, and who chose it: "random", or a strategy.
  struct Sampled {
    std::vector<int> schedule;
    std::string by;
  };
  std::vector<Sampled> sampled;

  // Replaces a point with the same plan.
  void add(tune::TimedPoint point, Sampled sampled = {});
  const tune::TimedPoint* find(const std::string& plan) const;
  // Of the best; nothing if no point was measured.
  std::optional<double> optimum() const;
  // By how much the slowest timing of the reference exceeds the fastest; 0 with fewer than two.
  double drift() const;

 private:
  std::map<std::string, std::size_t> by_plan_;
};

struct Recording {
  Json header;
  std::vector<Json> resumed;  // the headers of the recordings that went on with the file
  std::vector<TimedTable> tables;
};

// Errors (bad_input) name the line and the field. `origin` names the file in them; one that ends in
// .gz is unpacked (by gzip).
Recording read_recording(const std::filesystem::path& file);
Recording parse_recording(std::string_view text, const std::string& origin);

// The field in which a recording with this header is of something else than the file; or nothing.
std::optional<std::string> differing_field(const Json& header, const Json& other);

Json to_json(const tune::TimedPoint& point, int region);
Json to_json(const tune::TimedPoint& point, const TimedTable::Sampled& sampled, int region);
Json region_line(const TimedTable& table);
Json space_line(int region, const StepSites& sites);
// As they are in a file: with no more digits than clocks have.
std::vector<double> rounded(std::vector<double> samples);
Json fallback_line(int region, const std::vector<double>& samples);
// `attempt_seconds`: 0 if no point was timed since the last one.
Json reference_line(int region, const std::string& plan, const std::vector<double>& samples,
                    double attempt_seconds = 0);

}  // namespace ac::study
