#include "cli/bench_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

namespace ac {
namespace {

std::string cell_of(const Json& value) {
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

// In double quotes where a comma, a quote or the end of a line is in it.
std::string csv_cell(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// In the order in which they first come.
std::vector<std::string> fields_of(const std::vector<Json>& measurements) {
  std::vector<std::string> fields;
  for (const Json& measurement : measurements)
    for (const auto& [name, value] : measurement.items())
      if (std::ranges::find(fields, name) == fields.end()) fields.push_back(name);
  return fields;
}

}  // namespace

std::string markdown_of(const std::vector<Json>& measurements) {
  std::vector<std::string> kinds;
  for (const Json& measurement : measurements)
    if (const auto kind = measurement.at("what").get<std::string>();
        std::ranges::find(kinds, kind) == kinds.end())
      kinds.push_back(kind);
  std::string out;
  for (const std::string& kind : kinds) {
    std::vector<Json> rows;
    for (const Json& measurement : measurements)
      if (measurement.at("what") == kind) rows.push_back(measurement);
    std::vector<std::string> fields = fields_of(rows);
    std::erase(fields, "what");
    out += fmt::format("{}## {}\n\n| {} |\n|", out.empty() ? "" : "\n", kind,
                       fmt::join(fields, " | "));
    for (std::size_t i = 0; i < fields.size(); ++i) out += "---|";
    out += "\n";
    for (const Json& row : rows) {
      out += "|";
      for (const std::string& field : fields)
        out += fmt::format(" {} |", row.contains(field) ? cell_of(row[field]) : "");
      out += "\n";
    }
  }
  return out;
}

std::string csv_of(const std::vector<Json>& measurements) {
  const std::vector<std::string> fields = fields_of(measurements);
  std::string out = fmt::format("{}\n", fmt::join(fields, ","));
  for (const Json& measurement : measurements) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) out += ',';
      if (measurement.contains(fields[i])) out += csv_cell(measurement[fields[i]]);
    }
    out += '\n';
  }
  return out;
}

void BenchOutput::add(const Json& measurement, const std::string& text) {
  if (format_ == "text" || format_ == "jsonl") {
    fmt::print("{}\n", format_ == "text" ? text : measurement.dump());
    std::fflush(stdout);
  } else {
    measurements_.push_back(measurement);
  }
}

void BenchOutput::finish() const {
  if (format_ == "md") fmt::print("{}", markdown_of(measurements_));
  if (format_ == "csv") fmt::print("{}", csv_of(measurements_));
  if (format_ == "json") fmt::print("{}\n", Json(measurements_).dump(2));
}

}  // namespace ac
