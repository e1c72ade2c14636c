#include "report/document.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "device/device_info.h"
#include "emit/package_stages.h"
#include "emit/plan_file.h"
#include "report/step.h"

namespace ac {
namespace {

constexpr std::size_t kLargestFile = std::size_t{64} << 20;

// Runs what reads a line of measurements.
template <class Action>
auto reading_lines(const std::string& origin, Action&& action) {
  try {
    return action();
  } catch (const Json::exception& error) {
    bad_input("{}: not what bench -o json writes ({})", origin, error.what());
  }
}

void check_number(const Json& line, const char* key, const std::string& origin) {
  if (const auto value = line.at(key).get<double>(); !std::isfinite(value) || value < 0)
    bad_input("{}: {} is {}, which is no measurement", origin, key, value);
}

void check_line(const Json& line, const Program& program, const std::string& origin) {
  const auto what = line.at("what").get<std::string>();
  const auto model = line.at("model").get<std::string>();
  const auto dtype = line.at("dtype").get<std::string>();
  line.at("device").get<std::string>();
  if (model != program.model || dtype != short_name(program.dtype))
    bad_input("{}: it is of {} in {}, and the package has {} in {}", origin, quote(model), dtype,
              quote(program.model), short_name(program.dtype));
  if (what == "decode")
    for (const char* key : {"context", "ms", "weight_bytes", "cache_bytes", "limit_gb_s", "share"})
      check_number(line, key, origin);
  if (what == "timeline")
    for (const char* key : {"context", "launch", "start_us", "us", "bytes"})
      check_number(line, key, origin);
  if (what == "part") {
    line.at("point").get<std::string>();
    for (const char* key : {"context", "launch", "rounds", "us", "least_us"})
      check_number(line, key, origin);
  }
}

Json package_json(const PackageFiles& package, const Program& program, const Json& plan) {
  std::int64_t weights = 0, cache_per_token = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Buffer::Role::weight) weights += buffer.bytes.at(1);
  for (const StateSpec& state : program.states) cache_per_token += bytes_of_token(state);
  double seconds = 0;
  for (const Json& stage : plan.at("stages")) seconds += stage.at("seconds").get<double>();
  const Phase& one = program.phase_of(1, 0);
  return {{"name", package.folder().filename().string()},
          {"model", program.model},
          {"target", program.target},
          {"dtype", plan.at("dtype")},
          {"own_dtype", plan.at("own_dtype")},
          {"measured", plan.at("measured")},
          {"vocab", program.vocab},
          {"max_context", program.max_context},
          {"chunk", program.longest_step()},
          {"caches", program.states.size()},
          {"weight_bytes", weights},
          {"cache_bytes_per_token", cache_per_token},
          {"kernels", program.kernels.size()},
          {"launches", one.launches.size()},
          {"planned_context", phase_in(plan, one.name).at("context").get<std::int64_t>()},
          {"seconds", seconds}};
}

// What the cost model takes the device to be; null if it knows none of this name.
Json device_json(const std::string& target) {
  const std::string name = target.ends_with('a') ? target.substr(0, target.size() - 1) : target;
  const auto& known = known_devices();
  const auto found = std::ranges::find(known, name, &DeviceInfo::target);
  return found == known.end() ? Json() : to_json(*found);
}

// The last step that was timed launch by launch; null if none was.
Json timed_step(const Program& program, const Json& plan, const Measurements& measurements) {
  std::vector<Json> lines;
  for (const Json& line : measurements.lines) {
    const bool is_part = line.at("what") == "part";
    if (is_part && (lines.empty() || line.at("launch") != lines.back().at("launch")))
      bad_input("{}: a part of launch {} does not follow it", measurements.origin,
                line.at("launch").get<std::int64_t>());
    if (is_part) lines.back()["parts"].push_back(line);
    if (line.at("what") != "timeline") continue;
    if (line.at("launch") == 0) lines.clear();
    lines.push_back(line);
  }
  if (lines.empty()) return {};
  const Phase& phase = program.phase_of(1, lines.front().at("context").get<std::int64_t>());
  return step_of(program, phase, phase_in(plan, phase.name), lines, measurements.origin);
}

// The timed step as a trace that chrome://tracing and Perfetto show; null where none was timed.
Json trace_of(const Json& document) {
  const Json& step = document.at("step");
  if (step.is_null()) return {};
  Json events = Json::array();
  const auto name = [&](const char* what, const std::string& of) {
    events.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", of}}}});
  };
  name("process_name", document.at("package").at("model").get<std::string>());
  name("thread_name", fmt::format("one token after {}", step.at("context").get<std::int64_t>()));
  const Json& selections =
      document.at("selection").at(step.at("phase").get<std::string>()).at("selection");
  for (const Json& launch : step.at("launches")) {
    const int selection = launch.at("selection").get<int>();
    events.push_back({{"name", launch.at("note")},
                      {"cat", selection < 0 ? "other"
                                            : selections.at(static_cast<std::size_t>(selection))
                                                  .at("category")
                                                  .get<std::string>()},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", launch.at("start_us")},
                      {"dur", launch.at("us")},
                      {"args", {{"kernel", launch.at("kernel")}, {"bytes", launch.at("bytes")}}}});
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}};
}

}  // namespace

Measurements read_measurements(const std::string& file, const Program& program) {
  const Json lines = read_json(file, {.bytes = kLargestFile});
  if (!lines.is_array()) bad_input("{}: not what bench -o json writes", file);
  return reading_lines(file, [&] {
    Measurements measurements{{}, file, {}};
    for (const Json& line : lines) {
      check_line(line, program, file);
      measurements.lines.push_back(line);
    }
    return measurements;
  });
}

Json report_document(const PackageFiles& package, const Program& program, const Json& plan,
                     const Measurements& measurements) {
  const std::string origin = (package.folder() / "plan.json").string();
  Json document = reading_plan(origin, [&] {
    Json kernels = Json::object();
    for (const auto& [entry, kernel] : plan.at("kernels").items())
      kernels[entry] = {{"registers", kernel.at("registers")},
                        {"spill_bytes", kernel.at("spill_bytes")}};
    Json phases = Json::array();
    for (const auto& [name, phase] : phases_of(plan)) phases.push_back(name);
    return Json{{"package", package_json(package, program, plan)},
                {"device", device_json(program.target)},
                {"phases", std::move(phases)},
                {"kernels", std::move(kernels)}};
  });
  for (const auto& [name, stage] : std::initializer_list<std::pair<const char*, PackageStage>>{
           {"stats", PackageStage::stats},
           {"regions", PackageStage::regions},
           {"selection", PackageStage::selection},
           {"verdicts", PackageStage::verdicts},
           {"advice", PackageStage::advice}})
    document[name] = stage_json(plan, stage, origin);
  document["step"] =
      reading_lines(measurements.origin, [&] { return timed_step(program, plan, measurements); });
  document["trace"] = trace_of(document);
  document["measurements"] = measurements.lines;
  document["not_measured"] = measurements.why_none;
  return document;
}

}  // namespace ac
