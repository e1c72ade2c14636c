// How `bench` prints what it measured.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace ac {

class BenchOutput {
 public:
  // "text", "md", "json", "jsonl" or "csv".
  explicit BenchOutput(std::string format) : format_(std::move(format)) {}
  // A measurement, and the same as a line for people. Formats of lines print it at once.
  void add(const Json& measurement, const std::string& text);
  void finish() const;

 private:
  std::string format_;
  std::vector<Json> measurements_;
};

// A table for each kind of measurement.
std::string markdown_of(const std::vector<Json>& measurements);
// One table with the fields of all.
std::string csv_of(const std::vector<Json>& measurements);

}  // namespace ac
