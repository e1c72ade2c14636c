// What a replay found, for people (report.md, with a plot of each group as SVG) and for programs
// (report.json).
#pragma once

#include <filesystem>

#include "study/replay.h"

namespace ac::study {

std::string to_markdown(const Replayed& replayed);
Json to_json(const Replayed& replayed);
// Into a folder, which is made.
void write_report(const Replayed& replayed, const std::filesystem::path& to);

}  // namespace ac::study
