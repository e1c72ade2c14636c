#include "study/timed_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "lab/measure.h"

namespace ac::study {
namespace {

constexpr std::size_t kMaxRecordingBytes = std::size_t{1} << 30;
constexpr JsonLimits kRecordLimits{.bytes = 16u << 20, .depth = 8, .values = 2'000'000};

// Of one line, with errors that name it.
class RecordedLine {
 public:
  RecordedLine(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) bad_input("{}: is no object", where_);
  }

  bool has(const char* field) const { return json_.contains(field); }
  const Json& at(const char* field) const {
    if (!has(field)) bad_input("{}: has no field \"{}\"", where_, field);
    return json_.at(field);
  }
  std::string text(const char* field) const {
    if (!at(field).is_string()) wrong(field, "a text");
    return at(field).get<std::string>();
  }
  std::int64_t integer(const char* field) const {
    if (!at(field).is_number_integer()) wrong(field, "a whole number");
    return at(field).get<std::int64_t>();
  }
  double number(const char* field) const {
    if (!at(field).is_number()) wrong(field, "a number");
    const double value = at(field).get<double>();
    if (!std::isfinite(value) || value < 0) wrong(field, "a number that is not negative");
    return value;
  }
  std::vector<double> samples() const {
    std::vector<double> samples;
    if (!at("samples_us").is_array()) wrong("samples_us", "an array of numbers");
    for (const Json& sample : at("samples_us")) {
      if (!sample.is_number() || !(sample.get<double>() > 0) ||
          !std::isfinite(sample.get<double>()))
        wrong("samples_us", "an array of positive numbers");
      samples.push_back(sample.get<double>());
    }
    if (samples.empty()) wrong("samples_us", "an array that is not empty");
    return samples;
  }
  [[noreturn]] void wrong(const char* field, const char* what) const {
    bad_input("{}: \"{}\" is not {}", where_, field, what);
  }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  const std::string where_;
};

void read_outcome(const RecordedLine& line, tune::TimedPoint& timed) {
  const auto verdict = search::verdict_from(line.text("outcome"));
  if (!verdict) line.wrong("outcome", "one of measured, illegal, uncompilable, wrong, failed");
  timed.verdict = *verdict;
  if (line.has("why")) timed.why = line.text("why");
  if (line.has("admission")) {
    if (line.text("admission") != "skipped") line.wrong("admission", "\"skipped\"");
    timed.was_admitted = false;
  }
  if (timed.verdict == search::Verdict::measured) timed.samples = line.samples();
}

tune::TimedPoint point_of(const RecordedLine& line, const Json& json) {
  tune::TimedPoint timed;
  timed.point.id = line.text("plan");
  timed.point.predicted = line.number("predicted_us");
  if (line.has("parts")) {
    if (!line.at("parts").is_array()) line.wrong("parts", "an array");
    for (const Json& of : line.at("parts")) {
      const RecordedLine part(of, line.where() + ": \"parts\"");
      timed.point.parts.push_back(site_plan_from(of, part.text("site"), part.where()));
    }
  } else {
    timed.point.parts.push_back(site_plan_from(json, "", line.where()));
  }
  read_outcome(line, timed);
  return timed;
}

Json samples_json(const std::vector<double>& samples) {
  Json json = Json::array();
  for (const double sample : rounded(samples)) json.push_back(sample);
  return json;
}

void add_outcome(const tune::TimedPoint& timed, Json& json) {
  json["outcome"] = search::to_string(timed.verdict);
  if (!timed.why.empty()) json["why"] = timed.why;
  if (!timed.was_admitted) json["admission"] = "skipped";
  if (timed.verdict == search::Verdict::measured) json["samples_us"] = samples_json(timed.samples);
}

}  // namespace

class Reader {
 public:
  Recording read(std::string_view text, const std::string& origin) {
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      ++number;
      const std::size_t end = text.find('\n', at);
      const std::string where = fmt::format("{}: line {}", origin, number);
      if (end == std::string_view::npos)
        bad_input("{}: is cut off: let \"study record\" finish the recording", where);
      const Json json = parse_json(text.substr(at, end - at), where, kRecordLimits);
      add(RecordedLine(json, where), json);
      at = end + 1;
    }
    if (number == 0) bad_input("{}: is empty", origin);
    return std::move(recording_);
  }

 private:
  void add(const RecordedLine& line, const Json& json) {
    if (recording_.header.is_null() || line.has("study")) return add_header(line, json);
    const std::int64_t region = line.integer("region");
    if (line.has("signature")) return add_region(line, region);
    if (region < 0 || region >= static_cast<std::int64_t>(recording_.tables.size()))
      bad_input("{}: \"region\": no line before says what region {} is", line.where(), region);
    TimedTable& table = recording_.tables[static_cast<std::size_t>(region)];
    if (line.has("fallback")) {
      for (const double sample : line.samples()) table.fallback.push_back(sample);
      return;
    }
    if (line.has("reference")) {
      table.references.push_back(line.samples());
      if (line.has("attempt_seconds")) {
        const double seconds = line.number("attempt_seconds");
        if (!(seconds > 0)) line.wrong("attempt_seconds", "a positive number");
        table.attempt_seconds.push_back(seconds);
      }
      return;
    }
    if (line.has("space")) return add_space(line, table);
    if (line.has("schedule") || table.sites) return add_sampled(line, table);
    tune::TimedPoint point = point_of(line, json);
    const auto& first = table.points.empty() ? point : table.points[0];
    if (point.point.parts.size() != first.point.parts.size())
      bad_input("{}: \"parts\": the region's other points have other sites", line.where());
    for (std::size_t i = 0; i < point.point.parts.size(); ++i)
      if (point.point.parts[i].site != first.point.parts[i].site)
        bad_input("{}: \"parts\": the region's other points have other sites", line.where());
    table.add(std::move(point));
  }

  void add_space(const RecordedLine& line, TimedTable& table) {
    if (table.sites || !table.points.empty())
      bad_input("{}: \"space\": the region has one, or points without", line.where());
    table.sites = std::make_shared<const StepSites>(
        sites_from(line.at("space"), line.where() + ": \"space\""));
    spaces_[table.region] = table.sites->space();
  }

  void add_sampled(const RecordedLine& line, TimedTable& table) {
    if (!table.sites) bad_input("{}: \"schedule\": no line before has its space", line.where());
    const search::ProductSpace& space = *spaces_.at(table.region);
    TimedTable::Sampled sampled{{}, line.text("by")};
    if (!line.at("schedule").is_array()) line.wrong("schedule", "an array of whole numbers");
    for (const Json& choice : line.at("schedule")) {
      if (!choice.is_number_integer()) line.wrong("schedule", "an array of whole numbers");
      sampled.schedule.push_back(choice.get<int>());
    }
    if (sampled.schedule.size() != space.sites().size())
      bad_input("{}: \"schedule\": expected {} sites", line.where(), space.sites().size());
    for (std::size_t i = 0; i < sampled.schedule.size(); ++i)
      if (sampled.schedule[i] < -1 ||
          sampled.schedule[i] >= static_cast<int>(space.sites()[i].choices.size()))
        bad_input("{}: \"schedule\": site {} has no choice {}", line.where(),
                  quote(space.sites()[i].name), sampled.schedule[i]);
    const int point = space.point(sampled.schedule);
    if (space.choices(point) != sampled.schedule)
      bad_input("{}: \"schedule\": it has sites that its fusions do not leave, or lacks some",
                line.where());
    tune::TimedPoint timed;
    timed.point.id = space.id(point);
    timed.point.predicted = space.predicted(point);
    read_outcome(line, timed);
    table.add(std::move(timed), std::move(sampled));
  }

  void add_header(const RecordedLine& line, const Json& json) {
    if (!line.has("study") || json.at("study") != 1)
      bad_input("{}: \"study\" is not 1: this is no recording that this program reads",
                line.where());
    for (const char* field : {"device", "toolkit", "model", "date"}) line.text(field);
    if (recording_.header.is_null()) {
      recording_.header = json;
      return;
    }
    if (const auto field = differing_field(recording_.header, json))
      bad_input("{}: \"{}\" is not that of line 1", line.where(), *field);
    recording_.resumed.push_back(json);
  }

  void add_region(const RecordedLine& line, std::int64_t region) {
    if (region != static_cast<std::int64_t>(recording_.tables.size()))
      bad_input("{}: \"region\": expected {} for the next region", line.where(),
                recording_.tables.size());
    TimedTable table;
    table.region = static_cast<int>(region);
    table.signature = line.text("signature");
    table.description = line.text("description");
    table.uses = line.number("uses");
    recording_.tables.push_back(std::move(table));
  }

  Recording recording_;
  std::map<int, std::unique_ptr<search::ProductSpace>> spaces_;  // by region
};

void TimedTable::add(tune::TimedPoint point, Sampled of) {
  const auto [at, is_new] = by_plan_.emplace(point.point.id, points.size());
  if (!is_new) {
    points[at->second] = std::move(point);
    return;
  }
  points.push_back(std::move(point));
  if (sites) sampled.push_back(std::move(of));
}

const tune::TimedPoint* TimedTable::find(const std::string& plan) const {
  const auto known = by_plan_.find(plan);
  return known == by_plan_.end() ? nullptr : &points[known->second];
}

std::optional<double> TimedTable::optimum() const {
  std::optional<double> best;
  for (const tune::TimedPoint& point : points)
    if (const search::PointOutcome outcome = point.outcome(); outcome.ok())
      best = std::min(best.value_or(outcome.microseconds), outcome.microseconds);
  return best;
}

double TimedTable::drift() const {
  std::vector<double> medians;
  for (const std::vector<double>& samples : references) medians.push_back(median(samples));
  if (medians.size() < 2) return 0;
  const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
  return *most / *least - 1;
}

std::optional<std::string> differing_field(const Json& header, const Json& other) {
  for (const char* field : {"device", "toolkit", "model", "dtype", "tokens", "context", "space",
                            "max_points", "plans", "seed"})
    if (header.value(field, Json()) != other.value(field, Json())) return field;
  return std::nullopt;
}

Recording parse_recording(std::string_view text, const std::string& origin) {
  return Reader().read(text, origin);
}

Recording read_recording(const std::filesystem::path& file) {
  if (file.extension() != ".gz")
    return parse_recording(read_file(file, kMaxRecordingBytes), file.string());
  if (!std::filesystem::is_regular_file(file))
    bad_input("{}: there is no such file", file.string());
  const ProcessResult unpacked =
      run_process({"gzip", "-dc", "--", file.string()}, ChildOutput::captured);
  if (!unpacked.ok()) bad_input("{}: gzip cannot unpack it", file.string());
  return parse_recording(unpacked.output, file.string());
}

Json to_json(const tune::TimedPoint& timed, int region) {
  Json json{{"region", region}, {"plan", timed.point.id}};
  const std::vector<search::SitePlan>& parts = timed.point.parts;
  if (parts.size() == 1 && parts[0].site.empty()) {
    json["family"] = parts[0].family;
    json["fields"] = fields_json(parts[0]);
  } else {
    json["parts"] = Json::array();
    for (const search::SitePlan& part : parts)
      json["parts"].push_back(
          {{"site", part.site}, {"family", part.family}, {"fields", fields_json(part)}});
  }
  json["predicted_us"] = std::round(timed.point.predicted * 1e4) / 1e4;
  add_outcome(timed, json);
  return json;
}

Json to_json(const tune::TimedPoint& timed, const TimedTable::Sampled& sampled, int region) {
  Json json{{"region", region}, {"schedule", sampled.schedule}, {"by", sampled.by}};
  add_outcome(timed, json);
  return json;
}

Json space_line(int region, const StepSites& sites) {
  return {{"region", region}, {"space", to_json(sites)}};
}

std::vector<double> rounded(std::vector<double> samples) {
  for (double& sample : samples) sample = std::round(sample * 1e4) / 1e4;
  return samples;
}

Json region_line(const TimedTable& table) {
  return {{"region", table.region},
          {"signature", table.signature},
          {"description", table.description},
          {"uses", table.uses}};
}

Json reference_line(int region, const std::string& plan, const std::vector<double>& samples,
                    double attempt_seconds) {
  Json line{{"region", region}, {"reference", plan}, {"samples_us", samples_json(samples)}};
  if (attempt_seconds > 0) line["attempt_seconds"] = std::round(attempt_seconds * 1e6) / 1e6;
  return line;
}

Json fallback_line(int region, const std::vector<double>& samples) {
  return {{"region", region}, {"fallback", true}, {"samples_us", samples_json(samples)}};
}

}  // namespace ac::study
