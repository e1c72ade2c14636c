// What a report shows, as one JSON document: the stages of the compilation as `inspect PKG --json`
// gives them, and measurements as `bench PKG -o json` does.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "program/program.h"
#include "runtime/package_files.h"

namespace ac {

struct Measurements {
  std::vector<Json> lines;
  std::string origin;  // of the lines, for errors and for people
  std::string why_none;
};

// What `bench -o json` wrote, of this program. A file of something else is an error (bad_input).
Measurements read_measurements(const std::string& file, const Program& program);

Json report_document(const PackageFiles& package, const Program& program, const Json& plan,
                     const Measurements& measurements);

}  // namespace ac
