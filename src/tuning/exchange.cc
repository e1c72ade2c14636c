// Attempts as JSON lines.
#include <fmt/format.h>

#include <cmath>
#include <ostream>

#include "base/error.h"
#include "base/files.h"
#include "tuning/database.h"

namespace ac::tuning {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
constexpr JsonLimits kLine{.bytes = 1 << 20, .depth = 4, .values = 20'000};

}  // namespace

Json to_json(const TimedAttempt& attempt) {
  Json json{{"region", attempt.key.region},
            {"plan", attempt.key.plan},
            {"kernels", attempt.key.kernels},
            {"device", attempt.key.device},
            {"toolkit", attempt.key.toolkit},
            {"setting", attempt.key.setting},
            {"verdict", search::to_string(attempt.verdict)}};
  if (!attempt.why.empty()) json["why"] = attempt.why;
  json["samples_us"] = attempt.samples;
  json["predicted_us"] = attempt.predicted;
  json["model"] = attempt.model;
  json["time"] = attempt.time;
  return json;
}

TimedAttempt attempt_from_json(const Json& json, const std::string& origin) {
  if (!json.is_object()) bad_input("{}: is no object", origin);
  const auto field = [&](const char* name, bool right, const char* what) -> const Json& {
    if (!json.contains(name)) bad_input("{}: has no field \"{}\"", origin, name);
    if (!right) bad_input("{}: \"{}\" is not {}", origin, name, what);
    return json.at(name);
  };
  const auto text = [&](const char* name) {
    return field(name, json.contains(name) && json.at(name).is_string(), "a text")
        .get<std::string>();
  };
  const auto number = [&](const Json& value, const char* name) {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
      bad_input("{}: \"{}\" is not a number that is not negative", origin, name);
    return value.get<double>();
  };
  TimedAttempt attempt;
  attempt.key = {text("region"), text("plan"),    text("kernels"),
                 text("device"), text("toolkit"), text("setting")};
  const auto verdict = search::verdict_from(text("verdict"));
  if (!verdict) bad_input("{}: \"verdict\" is none that is known", origin);
  attempt.verdict = *verdict;
  if (json.contains("why")) attempt.why = text("why");
  for (const Json& sample :
       field("samples_us", json.contains("samples_us") && json.at("samples_us").is_array(),
             "an array"))
    attempt.samples.push_back(number(sample, "samples_us"));
  if (attempt.verdict == search::Verdict::measured && attempt.samples.empty())
    bad_input("{}: \"samples_us\" is empty, though it was measured", origin);
  attempt.predicted = number(field("predicted_us", true, ""), "predicted_us");
  attempt.model = text("model");
  const Json& time = field("time", true, "");
  if (!time.is_number_integer() || time.get<std::int64_t>() <= 0)
    bad_input("{}: \"time\" is not a positive whole number", origin);
  attempt.time = time.get<std::int64_t>();
  return attempt;
}

void export_attempts(const Database& database, std::ostream& to) {
  to << R"({"tuning":1})" << "\n";
  database.each([&](const TimedAttempt& attempt) { to << to_json(attempt).dump() << "\n"; });
}

std::size_t import_attempts(Database& database, const std::filesystem::path& file) {
  const std::string text = read_file(file, kMaxBytes);
  std::vector<TimedAttempt> attempts;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}: line {}", file.string(), ++number);
    const Json line = parse_json(std::string_view(text).substr(at, end - at), where, kLine);
    at = end + 1;
    if (number > 1)
      attempts.push_back(attempt_from_json(line, where));
    else if (!line.is_object() || line.value("tuning", Json()) != 1)
      bad_input("{}: \"tuning\" is not 1: these are no attempts that this program reads", where);
  }
  if (number == 0) bad_input("{}: is empty", file.string());
  return database.add(attempts);
}

}  // namespace ac::tuning
