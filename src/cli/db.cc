#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/table.h"
#include "build/compile.h"
#include "cli/choice.h"
#include "cli/commands.h"
#include "tuning/database.h"

namespace ac {
namespace {

constexpr std::int64_t kDay = 86'400'000;  // milliseconds

struct Db {
  std::string file, other;
  tuning::Prune which;
  double older_than = 0;  // days
  bool json = false;

  tuning::Database open(bool create) const {
    std::filesystem::path path = file;
    if (path.empty()) path = builder_options(read_environment()).cache / "tuning.sqlite";
    if (!create && !std::filesystem::exists(path))
      bad_input("{}: there is no tuning database yet", path.string());
    return tuning::Database(path);
  }

  void stats() const {
    const Json stats = open(false).stats();
    if (json) {
      fmt::print("{}\n", stats.dump());
      return;
    }
    fmt::print("{}: {} attempts at {} plans of {} regions, {} bytes\n",
               stats["file"].get<std::string>(), stats["attempts"].get<std::int64_t>(),
               stats["plans"].get<std::int64_t>(), stats["regions"].get<std::int64_t>(),
               stats["bytes"].get<std::int64_t>());
    Table table({"attempts", "by", "of"});
    for (const char* by : {"verdicts", "devices", "toolkits", "models"})
      for (const auto& [name, count] : stats[by].items())
        table.add({fmt::format("{}", count.get<std::int64_t>()), by, name});
    fmt::print("{}", table.text());
  }

  void write() const {
    const tuning::Database database = open(false);
    if (other.empty()) {
      tuning::export_attempts(database, std::cout);
      std::cout.flush();
      return;
    }
    std::ofstream to(other);
    tuning::export_attempts(database, to);
    to.close();
    if (!to) job_failed("cannot write {}", other);
  }

  void read() const {
    tuning::Database database = open(true);
    report("imported", tuning::import_attempts(database, other));
  }

  void prune() {
    if (older_than > 0) {
      const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::system_clock::now().time_since_epoch());
      which.before = now.count() - static_cast<std::int64_t>(older_than * kDay);
    }
    if (!which.superseded && which.before == 0 && which.device.empty() && which.region.empty())
      wrong_usage("prune needs --superseded, --older-than, --device or --region");
    report("removed", open(false).prune(which));
  }

  void report(const char* what, std::size_t count) const {
    if (json)
      fmt::print("{}\n", Json{{what, count}}.dump());
    else
      fmt::print("{} {} attempts\n", what, count);
  }
};

}  // namespace

void add_db_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("db", "The tuning database: each attempt and its outcome");
  command->require_subcommand(1);
  const auto db = std::make_shared<Db>();
  const auto add = [&](const char* name, const char* meaning, bool prints_json = true) {
    CLI::App* sub = command->add_subcommand(name, meaning);
    sub->add_option("--db", db->file, "The database (default: tuning.sqlite in the cache folder)");
    if (prints_json) sub->add_flag("--json", db->json, "Print JSON");
    return sub;
  };
  command->footer(
      "Examples:\n"
      "  agentcompile db stats\n"
      "  agentcompile db export attempts.jsonl\n"
      "  agentcompile db prune --superseded --older-than 90");
  add("stats", "What is in it, and whether it is whole")->callback([db] { db->stats(); });
  CLI::App* to = add("export", "Write all attempts as JSON lines", false);
  to->add_option("FILE", db->other, "Instead of stdout");
  to->callback([db] { db->write(); });
  CLI::App* from = add("import", "Add attempts from JSON lines");
  from->add_option("FILE", db->other, "What export wrote")->required();
  from->callback([db] { db->read(); });
  CLI::App* prune = add("prune", "Remove attempts that all given conditions describe");
  prune->add_flag("--superseded", db->which.superseded,
                  "Tried again later, with whatever kernels or toolkit");
  prune->add_option("--older-than", db->older_than, "Days")->check(kPositive);
  prune->add_option("--device", db->which.device, "Part of the device's name");
  prune->add_option("--region", db->which.region, "Part of the region's signature");
  prune->callback([db] { db->prune(); });
}

}  // namespace ac
