#include "lab/jobs.h"

#include "base/error.h"
#include "base/json.h"
#include "ir/graph_text.h"
#include "lab/span.h"

namespace ac {
namespace {

Json json_of(const ServeJob&) { return {{"job", "serve"}}; }

Json json_of(const BenchJob& job) {
  return {{"job", "bench"},
          {"package", job.package.string()},
          {"random", job.random.string()},
          {"context", job.context}};
}

Json json_of(const StepsJob& job) {
  Json parts = Json::array();
  for (const TimedPart& part : job.parts) {
    Json options = Json::array();
    for (const Span span : part.options) options.push_back(to_json(span));
    parts.push_back(
        {{"site", part.site}, {"options", std::move(options)}, {"by_position", part.by_position}});
  }
  return {{"job", "steps"},
          {"package", job.package.string()},
          {"random", job.random.string()},
          {"parts", std::move(parts)},
          {"ending", to_json(job.ending)}};
}

Json json_of(const PairJob& job) {
  return {{"job", "pair"},
          {"chosen", job.chosen.string()},
          {"plain", job.plain.string()},
          {"random", job.random.string()},
          {"checkpoint", job.checkpoint.string()},
          {"roundings", job.roundings},
          {"left_free", job.left_free},
          {"step", job.step ? print(*job.step) : ""}};
}

std::filesystem::path path_at(const Json& json, const char* field) {
  return json.at(field).get<std::string>();
}

StepsJob steps_job_of(const Json& json) {
  StepsJob job{path_at(json, "package"), path_at(json, "random"), {}, span_of(json.at("ending"))};
  for (const Json& entry : json.at("parts")) {
    TimedPart part{entry.at("site"), {}, entry.at("by_position")};
    for (const Json& span : entry.at("options")) part.options.push_back(span_of(span));
    job.parts.push_back(std::move(part));
  }
  return job;
}

PairJob pair_job_of(const Json& json) {
  PairJob job{.chosen = path_at(json, "chosen"),
              .plain = path_at(json, "plain"),
              .random = path_at(json, "random"),
              .checkpoint = path_at(json, "checkpoint"),
              .roundings = json.at("roundings"),
              .left_free = json.at("left_free")};
  if (const std::string step = json.at("step"); !step.empty()) job.step = parse_step(step, "job");
  return job;
}

Job job_of(const Json& json) {
  const std::string kind = json.at("job");
  if (kind == "serve") return ServeJob{};
  if (kind == "bench")
    return BenchJob{path_at(json, "package"), path_at(json, "random"), json.at("context")};
  if (kind == "steps") return steps_job_of(json);
  if (kind == "pair") return pair_job_of(json);
  bad_input("a worker knows no job \"{}\"", kind);
}

}  // namespace

Json to_json(Span span) { return {span.begin, span.end}; }

Span span_of(const Json& json) { return {json.at(0), json.at(1)}; }

std::string line_of(const Assignment& assignment) {
  Json json = std::visit([](const auto& job) { return json_of(job); }, assignment.job);
  json["device"] = assignment.on_gpu ? "cuda" : "host";
  json["turns"] = assignment.turns.string();
  return json.dump();
}

Assignment assignment_of(const std::string& line) {
  const Json json = Json::parse(line);
  return {json.at("device") == "cuda", job_of(json), path_at(json, "turns")};
}

std::string line_of(const Samples& samples) { return Json(samples).dump(); }

Samples samples_of(const std::string& line) { return Json::parse(line).get<Samples>(); }

}  // namespace ac
