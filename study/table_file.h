// A recording that grows: what is in the file is known, what is new is appended line by line, so
// that whatever ends the program loses no more than the line that it was writing.
#pragma once

#include <cstdio>
#include <memory>

#include "study/timed_table.h"

namespace ac::study {

class TableFile {
 public:
  // Makes the file if there is none; else the header is written again in front of what is new, so
  // that the file says of each line which commit, command and day it is of. A file that says
  // another device, toolkit, model, tokens or context is an error (wrong_usage), as is a folder
  // that does not take it (job_failed).
  TableFile(const std::filesystem::path& path, const Json& header);

  // The number of the region, new or known.
  int region(const std::string& signature, const std::string& description, double uses);
  const TimedTable& table(int region) const {
    return recording_.tables[static_cast<std::size_t>(region)];
  }
  void append(int region, tune::TimedPoint point);
  // Of a step whose schedules are too many to list. Other sites than the file's are an error
  // (wrong_usage).
  void set_sites(int region, const StepSites& sites);
  void append(int region, tune::TimedPoint point, TimedTable::Sampled sampled);
  void append_reference(int region, const std::string& plan, const std::vector<double>& samples,
                        double attempt_seconds);
  void append_fallback(int region, const std::vector<double>& samples);

 private:
  void write(const Json& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  Recording recording_;
  Json resumed_by_;  // the header that is due; null: none
};

}  // namespace ac::study
