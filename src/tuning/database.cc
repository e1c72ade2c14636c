#include "tuning/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <utility>

#include "base/error.h"

namespace ac::tuning {
namespace {

constexpr int kFormat = 1;                // user_version
constexpr int kApplication = 0x41437464;  // application_id: "ACtd"

constexpr const char* kSchema = R"(
  CREATE TABLE attempts (
    region TEXT NOT NULL, plan TEXT NOT NULL, kernels TEXT NOT NULL, device TEXT NOT NULL,
    toolkit TEXT NOT NULL, setting TEXT NOT NULL, verdict TEXT NOT NULL, why TEXT NOT NULL,
    samples TEXT NOT NULL, predicted REAL NOT NULL, model TEXT NOT NULL, time INTEGER NOT NULL,
    UNIQUE (region, plan, kernels, device, toolkit, setting, time, verdict, samples));
  PRAGMA application_id = 0x41437464;
  PRAGMA user_version = 1;)";

constexpr const char* kColumns =
    "region, plan, kernels, device, toolkit, setting, verdict, why, samples, predicted, model, "
    "time";

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// A query, bound and stepped through.
class Database::Statement {
 public:
  Statement(const Database& database, const std::string& sql) : database_(database) {
    if (sqlite3_prepare_v2(database.database_, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK)
      database.fail();
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    check(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                            SQLITE_TRANSIENT));
    return *this;
  }
  Statement& bind(std::int64_t number) {
    check(sqlite3_bind_int64(statement_, ++bound_, number));
    return *this;
  }
  Statement& bind(double number) {
    check(sqlite3_bind_double(statement_, ++bound_, number));
    return *this;
  }
  Statement& bind(const Key& key) {
    return bind(key.region)
        .bind(key.plan)
        .bind(key.kernels)
        .bind(key.device)
        .bind(key.toolkit)
        .bind(key.setting);
  }

  bool step() {
    const int result = sqlite3_step(statement_);
    if (result != SQLITE_ROW && result != SQLITE_DONE) database_.fail();
    return result == SQLITE_ROW;
  }
  void reset() {
    sqlite3_reset(statement_);
    bound_ = 0;
  }

  std::string text(int column) const {
    const unsigned char* text = sqlite3_column_text(statement_, column);
    return text ? reinterpret_cast<const char*>(text) : "";
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double number(int column) const { return sqlite3_column_double(statement_, column); }

  TimedAttempt attempt() const {
    TimedAttempt attempt;
    attempt.key = {text(0), text(1), text(2), text(3), text(4), text(5)};
    const auto verdict = search::verdict_from(text(6));
    if (!verdict)
      bad_input("{}: an attempt has no verdict that is known", database_.path_.string());
    attempt.verdict = *verdict;
    attempt.why = text(7);
    for (const Json& sample : parse_json(text(8), database_.path_.string()))
      attempt.samples.push_back(sample.get<double>());
    attempt.predicted = number(9);
    attempt.model = text(10);
    attempt.time = integer(11);
    return attempt;
  }

 private:
  void check(int result) const {
    if (result != SQLITE_OK) database_.fail();
  }

  const Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

Database::Database(const std::filesystem::path& path, std::chrono::milliseconds patience)
    : path_(path), patience_(patience) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) job_failed("cannot make {}: {}", path.parent_path().string(), error.message());
  try {
    if (sqlite3_open_v2(path.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                        nullptr) != SQLITE_OK)
      fail();
    sqlite3_busy_timeout(database_, static_cast<int>(patience_.count()));
    set_up();
  } catch (...) {
    sqlite3_close(database_);
    throw;
  }
}

Database::Database(Database&& other) noexcept
    : path_(std::move(other.path_)),
      patience_(other.patience_),
      database_(std::exchange(other.database_, nullptr)) {}

Database::~Database() { sqlite3_close(database_); }

void Database::set_up() {
  // What a database in WAL mode has committed outlives a process that is killed; only the machine's
  // own end may take the latest with it.
  for (int waited = 0;; waited += 10) {
    // Two that make the file at once: SQLite does not wait for the other by itself here.
    const int result =
        sqlite3_exec(database_, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", nullptr,
                     nullptr, nullptr);
    if (result == SQLITE_OK) break;
    if (result != SQLITE_BUSY || waited > patience_.count()) fail();
    sqlite3_sleep(10);
  }
  const auto pragma = [&](const char* name) {
    Statement query(*this, fmt::format("PRAGMA {}", name));
    query.step();
    return query.integer(0);
  };
  execute("BEGIN IMMEDIATE");  // of two that make the file, one does
  Statement tables(*this, "SELECT count(*) FROM sqlite_master");
  tables.step();
  const bool is_new = tables.integer(0) == 0 && pragma("user_version") == 0;
  tables.reset();
  if (is_new) execute(kSchema);
  execute("COMMIT");
  if (pragma("application_id") != kApplication)
    bad_input("{} is a database of something else: choose another file", path_.string());
  if (const std::int64_t format = pragma("user_version"); format != kFormat)
    bad_input(
        "{} is in format {}, and this program reads {}: export it with the program that made it, "
        "and "
        "import that into a new file",
        path_.string(), format, kFormat);
}

void Database::execute(const char* sql) const {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

void Database::fail() const {
  const int code = sqlite3_errcode(database_) & 0xff;
  const std::string message = sqlite3_errmsg(database_);
  sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
    bad_input(
        "{} is damaged, or no database ({}): move it away, and import what was exported from it",
        path_.string(), message);
  if (code == SQLITE_BUSY)
    job_failed("{}: another process has kept it locked for {} s", path_.string(),
               patience_.count() / 1000);
  job_failed("{}: {}", path_.string(), message);
}

std::size_t Database::add(std::span<const TimedAttempt> attempts) {
  execute("BEGIN IMMEDIATE");
  std::size_t added = 0;
  Statement insert(*this, fmt::format("INSERT OR IGNORE INTO attempts ({}) VALUES "
                                      "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                      kColumns));
  for (const TimedAttempt& attempt : attempts) {
    insert.bind(attempt.key)
        .bind(std::string(search::to_string(attempt.verdict)))
        .bind(attempt.why)
        .bind(Json(attempt.samples).dump())
        .bind(attempt.predicted)
        .bind(attempt.model)
        .bind(attempt.time > 0 ? attempt.time : now())
        .step();
    added += static_cast<std::size_t>(sqlite3_changes(database_));
    insert.reset();
  }
  execute("COMMIT");
  return added;
}

std::optional<TimedAttempt> Database::find(const Key& key) const {
  Statement query(*this, fmt::format("SELECT {} FROM attempts WHERE region = ? AND plan = ? AND "
                                     "kernels = ? AND device = ? AND toolkit = ? AND setting = ? "
                                     "ORDER BY time DESC, rowid DESC LIMIT 1",
                                     kColumns));
  query.bind(key);
  if (!query.step()) return std::nullopt;
  return query.attempt();
}

std::vector<TimedAttempt> Database::of_region(const Key& key) const {
  Statement query(*this, fmt::format("SELECT {} FROM attempts WHERE region = ? AND device = ? AND "
                                     "toolkit = ? AND setting = ? ORDER BY plan, time, rowid",
                                     kColumns));
  query.bind(key.region).bind(key.device).bind(key.toolkit).bind(key.setting);
  std::vector<TimedAttempt> found;
  while (query.step()) {
    TimedAttempt attempt = query.attempt();
    if (!found.empty() && found.back().key.plan == attempt.key.plan)
      found.back() = std::move(attempt);
    else
      found.push_back(std::move(attempt));
  }
  return found;
}

Json Database::stats() const {
  Statement check(*this, "PRAGMA quick_check(1)");
  check.step();
  if (check.text(0) != "ok")
    bad_input("{} is damaged ({}): move it away, and import what was exported from it",
              path_.string(), check.text(0));
  const auto count = [&](const char* what) {
    Statement query(*this, fmt::format("SELECT count({}) FROM attempts", what));
    query.step();
    return query.integer(0);
  };
  const auto by = [&](const char* column) {
    Statement query(*this, fmt::format("SELECT {0}, count(*) FROM attempts GROUP BY {0}", column));
    Json json = Json::object();
    while (query.step()) json[query.text(0)] = query.integer(1);
    return json;
  };
  Statement times(*this, "SELECT min(time), max(time) FROM attempts");
  times.step();
  return {{"file", path_.string()},          {"bytes", std::filesystem::file_size(path_)},
          {"attempts", count("*")},          {"regions", count("DISTINCT region")},
          {"plans", count("DISTINCT plan")}, {"kernels", count("DISTINCT kernels")},
          {"verdicts", by("verdict")},       {"devices", by("device")},
          {"toolkits", by("toolkit")},       {"models", by("model")},
          {"oldest", times.integer(0)},      {"newest", times.integer(1)}};
}

void Database::each(const std::function<void(const TimedAttempt&)>& see) const {
  Statement query(*this, fmt::format("SELECT {} FROM attempts ORDER BY rowid", kColumns));
  while (query.step()) see(query.attempt());
}

std::size_t Database::prune(const Prune& which) {
  std::string condition = "1";
  if (which.superseded)
    condition +=
        " AND EXISTS (SELECT 1 FROM attempts AS later WHERE later.region = attempts.region AND "
        "later.plan = attempts.plan AND later.device = attempts.device AND later.setting = "
        "attempts.setting AND (later.time, later.rowid) > (attempts.time, attempts.rowid))";
  if (which.before > 0) condition += " AND time < ?";
  if (!which.device.empty()) condition += " AND instr(device, ?) > 0";
  if (!which.region.empty()) condition += " AND instr(region, ?) > 0";
  std::size_t removed = 0;
  {
    Statement remove(*this, "DELETE FROM attempts WHERE " + condition);
    if (which.before > 0) remove.bind(which.before);
    if (!which.device.empty()) remove.bind(which.device);
    if (!which.region.empty()) remove.bind(which.region);
    remove.step();
    removed = static_cast<std::size_t>(sqlite3_changes(database_));
  }
  execute("VACUUM");
  return removed;
}

}  // namespace ac::tuning
