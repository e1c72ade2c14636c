#include "study/table_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace ac::study {
namespace {

constexpr std::size_t kMaxTableBytes = std::size_t{1} << 30;

}  // namespace

TableFile::TableFile(const std::filesystem::path& path, const Json& header) : path_(path) {
  if (path.extension() == ".gz")
    wrong_usage("{}: recordings are packed when they are done, with gzip", path.string());
  file_.reset(std::fopen(path.c_str(), "ae"));
  if (!file_) job_failed("cannot write {}: {}", path.string(), std::strerror(errno));
  if (flock(fileno(file_.get()), LOCK_EX | LOCK_NB) != 0)
    job_failed("{}: another process is recording into it", path.string());
  std::string text = read_file(path, kMaxTableBytes);
  // What was being written when the last recording ended.
  const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) {
    if (ftruncate(fileno(file_.get()), static_cast<off_t>(whole)) != 0)
      job_failed("cannot write {}: {}", path.string(), std::strerror(errno));
    text.resize(whole);
  }
  if (text.empty()) {
    recording_.header = header;
    write(header);
    return;
  }
  recording_ = parse_recording(text, path.string());
  if (const auto field = differing_field(recording_.header, header))
    wrong_usage("{} is of another {} ({}, and not {}): choose another file", path.string(), *field,
                quote(recording_.header.value(*field, Json()).dump()),
                quote(header.value(*field, Json()).dump()));
  resumed_by_ = header;
}

int TableFile::region(const std::string& signature, const std::string& description, double uses) {
  for (const TimedTable& table : recording_.tables)
    if (table.signature == signature) return table.region;
  TimedTable table;
  table.region = static_cast<int>(recording_.tables.size());
  table.signature = signature, table.description = description, table.uses = uses;
  write(region_line(table));
  recording_.tables.push_back(std::move(table));
  return recording_.tables.back().region;
}

void TableFile::append(int region, tune::TimedPoint point) {
  write(to_json(point, region));
  recording_.tables[static_cast<std::size_t>(region)].add(std::move(point));
}

void TableFile::set_sites(int region, const StepSites& sites) {
  TimedTable& table = recording_.tables[static_cast<std::size_t>(region)];
  if (!table.sites) {
    write(space_line(region, sites));
    table.sites = std::make_shared<const StepSites>(sites);
  } else if (to_json(*table.sites) != to_json(sites)) {
    wrong_usage(
        "{} was recorded with other choices: a candidate was not admitted then, or is not now, or "
        "the program plans others. Choose another file",
        path_.string());
  }
}

void TableFile::append(int region, tune::TimedPoint point, TimedTable::Sampled sampled) {
  write(to_json(point, sampled, region));
  recording_.tables[static_cast<std::size_t>(region)].add(std::move(point), std::move(sampled));
}

void TableFile::append_reference(int region, const std::string& plan,
                                 const std::vector<double>& samples, double attempt_seconds) {
  write(reference_line(region, plan, samples, attempt_seconds));
  recording_.tables[static_cast<std::size_t>(region)].references.push_back(samples);
}

void TableFile::append_fallback(int region, const std::vector<double>& samples) {
  write(fallback_line(region, samples));
  std::vector<double>& known = recording_.tables[static_cast<std::size_t>(region)].fallback;
  known.insert(known.end(), samples.begin(), samples.end());
}

void TableFile::write(const Json& line) {
  if (!resumed_by_.is_null()) {
    recording_.resumed.push_back(std::exchange(resumed_by_, Json()));
    write(recording_.resumed.back());
  }
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0)
    job_failed("cannot write {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace ac::study
