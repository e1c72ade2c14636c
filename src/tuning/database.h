// What is known of plans from all that was ever tried, by any model: an SQLite file in WAL mode.
// Each attempt is one row under the key of everything that its outcome depends on, so that a change
// of kernel text, toolkit or device finds nothing instead of what is no longer true, and whatever
// did not change is found. Each addition is one transaction: a process that is killed loses no
// attempt that it has added, and several processes may write at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "search/strategy.h"

struct sqlite3;

namespace ac::tuning {

struct Key {
  std::string region;   // its signature: models share what they have in common
  std::string plan;     // the candidate's id
  std::string kernels;  // hash of all text that is compiled (kernel_hash())
  std::string device;   // fingerprint
  std::string toolkit;  // "NVRTC 13.0"
  std::string setting;  // sizes that it was timed at: "T=1 P=1024"
  bool operator==(const Key&) const = default;
};

// Why an attempt that was measured says no more than that: the gate was not asked.
constexpr const char* kUnjudged = "timed, not judged";

struct TimedAttempt {
  Key key;
  search::Verdict verdict = search::Verdict::measured;
  std::string why;              // if it was not measured; kUnjudged
  std::vector<double> samples;  // microseconds
  double predicted = 0;         // microseconds
  std::string model;            // that it was tried for
  std::int64_t time = 0;        // milliseconds since 1970; 0: now, when it is added
  bool operator==(const TimedAttempt&) const = default;
};

Json to_json(const TimedAttempt& attempt);
TimedAttempt attempt_from_json(const Json& json, const std::string& origin);

struct Prune {
  bool superseded = false;  // of what was tried again later, with whatever kernels or toolkit
  std::int64_t before = 0;  // older than this time
  std::string device = {}, region = {};  // parts of them; empty: any
};

class Database {
 public:
  // Makes the file, and the folders above it, if there is none. What is no such database, of
  // another format or damaged is an error (bad_input) that says what to do.
  // Another writer may take so long.
  static constexpr std::chrono::milliseconds kPatience{20'000};
  explicit Database(const std::filesystem::path& path,
                    std::chrono::milliseconds patience = kPatience);
  ~Database();
  Database(Database&&) noexcept;

  void add(const TimedAttempt& attempt) { add(std::span(&attempt, 1)); }
  // All or none. What is there already is left alone.
  std::size_t add(std::span<const TimedAttempt> attempts);

  // The latest under this key.
  std::optional<TimedAttempt> find(const Key& key) const;
  // The latest of every plan of a region, of which the key's plan and kernels say nothing.
  std::vector<TimedAttempt> of_region(const Key& key) const;

  Json stats() const;
  // In the order in which they were added.
  void each(const std::function<void(const TimedAttempt&)>& see) const;
  // Removes what all that is set in it describes, and gives the room back; how many there were.
  std::size_t prune(const Prune& which);

 private:
  class Statement;
  void execute(const char* sql) const;
  [[noreturn]] void fail() const;
  void set_up();

  std::filesystem::path path_;
  std::chrono::milliseconds patience_;
  sqlite3* database_ = nullptr;
};

// JSON lines: a first one that says what they are, then an attempt each. Reading them adds what is
// new, all or none; errors (bad_input) name the line.
void export_attempts(const Database& database, std::ostream& to);
std::size_t import_attempts(Database& database, const std::filesystem::path& file);

}  // namespace ac::tuning
