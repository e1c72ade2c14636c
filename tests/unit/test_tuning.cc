// The tuning database: what it finds, what it no longer finds, and what it survives.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "expect_error.h"
#include "tuning/database.h"
#include "tuning/kernel_hash.h"

using namespace ac;
using tuning::Database;
using tuning::Key;

namespace {

const Key kKey{"region", "gemv/R256", "text", "card", "NVRTC 13.0", "T=1 P=1024"};

tuning::TimedAttempt attempt(const Key& key, double us, std::int64_t time) {
  tuning::TimedAttempt made;
  made.key = key;
  made.samples = {us, us + 1};
  made.predicted = 2.5;
  made.model = "m";
  made.time = time;
  return made;
}

Key with_plan(std::string plan) {
  Key key = kKey;
  key.plan = std::move(plan);
  return key;
}

// A process that adds attempts until it is told to stop, or has added so many. It writes a byte for
// each when it is added.
pid_t writer(const std::filesystem::path& file, const std::string& name, int count, int report) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    Database database(file);
    for (int i = 0; i < count; ++i) {
      database.add(attempt(with_plan(fmt::format("{} {}", name, i)), 1, i + 1));
      if (write(report, "+", 1) != 1) break;
    }
    status = 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  _exit(status);
}

std::size_t attempts_in(const Database& database) {
  return database.stats().at("attempts").get<std::size_t>();
}

}  // namespace

TEST_CASE("tuning: what was added is found under its key, the latest first") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "new" / "t.sqlite";
  {
    Database database(file);
    CHECK_FALSE(database.find(kKey));
    database.add(attempt(kKey, 3, 100));
    database.add(attempt(kKey, 4, 200));
    CHECK(database.add(std::vector{attempt(kKey, 4, 200)}) == 0);  // it is there
    tuning::TimedAttempt failed = attempt(with_plan("bad"), 0, 0);
    failed.verdict = search::Verdict::wrong, failed.why = "numerics: 'x'; \"y\"",
    failed.samples = {};
    database.add(failed);
  }
  const Database database(file);
  CHECK(database.find(kKey) == attempt(kKey, 4, 200));
  const auto failed = database.find(with_plan("bad"));
  REQUIRE(failed);
  CHECK(failed->verdict == search::Verdict::wrong);
  CHECK(failed->why == "numerics: 'x'; \"y\"");
  CHECK(failed->time > 1'600'000'000'000);
  CHECK(database.of_region(kKey).size() == 2);
  CHECK(database.of_region(kKey)[1].samples[0] == 4);
  CHECK(attempts_in(database) == 3);
}

TEST_CASE("tuning: a change finds nothing that depends on it, and all that does not") {
  const TemporaryFolder folder;
  Database database(folder.path() / "t.sqlite");
  database.add(attempt(kKey, 3, 100));
  for (std::string Key::* part :
       {&Key::region, &Key::plan, &Key::kernels, &Key::device, &Key::toolkit, &Key::setting}) {
    Key changed = kKey;
    changed.*part += "'";
    CHECK_FALSE(database.find(changed));
  }
  CHECK(database.find(kKey));
}

TEST_CASE("tuning: the hash of kernels follows the text that is compiled, and nothing else") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "kernels");
  const auto set = [&](const std::string& name, const std::string& text) {
    write_file(folder.path() / "kernels" / name, text);
  };
  set("a.cuh", "#include \"kernels/b.h\"\n"), set("b.h", "int b;\n"), set("c.h", "int c;\n");
  const std::vector<KernelSource> sources{{"f", "#include \"kernels/a.cuh\"\nF(1)"}};
  const auto hash = [&](const std::vector<KernelSource>& of) {
    Headers headers(folder.path());
    return tuning::kernel_hash(of, headers);
  };
  const std::string before = hash(sources);
  CHECK(hash(sources) == before);
  set("c.h", "int other;\n");  // is not reached
  CHECK(hash(sources) == before);
  CHECK(hash({{"f", "#include \"kernels/a.cuh\"\nF(2)"}}) != before);
  set("b.h", "long b;\n");  // is reached through another
  CHECK(hash(sources) != before);
  DeviceInfo device = device_info("sm_90");
  const std::string card = tuning::fingerprint(device, "H100");
  device.multiprocessors -= 1;
  CHECK(tuning::fingerprint(device, "H100") != card);
}

TEST_CASE("tuning: a writer that is killed loses nothing that it has added") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "t.sqlite";
  for (int round = 0; round < 3; ++round) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = writer(file, fmt::format("round {}", round), 1'000'000, ends[1]);
    close(ends[1]);
    std::size_t added = 0;
    for (char c; added < 40 + static_cast<std::size_t>(round) * 17 && read(ends[0], &c, 1) == 1;)
      ++added;
    kill(child, SIGKILL);
    for (char c; read(ends[0], &c, 1) == 1;) ++added;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    const Database database(file);
    CHECK(attempts_in(database) >= added);  // also says that the file is whole
    for (std::size_t i = 0; i < added; i += 7)
      CHECK(database.find(with_plan(fmt::format("round {} {}", round, i))));
  }
}

TEST_CASE("tuning: two processes write at once") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "t.sqlite";
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t children[] = {writer(file, "a", 150, ends[1]), writer(file, "b", 150, ends[1])};
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  close(ends[0]), close(ends[1]);
  CHECK(attempts_in(Database(file)) == 300);
}

TEST_CASE("tuning: attempts travel as text") {
  const TemporaryFolder folder;
  Database from(folder.path() / "a.sqlite"), to(folder.path() / "b.sqlite");
  from.add(attempt(kKey, 3, 100));
  tuning::TimedAttempt failed = attempt(with_plan("x"), 0, 5);
  failed.verdict = search::Verdict::uncompilable, failed.why = "line\nbreak", failed.samples = {};
  from.add(failed);
  const std::filesystem::path file = folder.path() / "out.jsonl";
  {
    std::ofstream out(file);
    tuning::export_attempts(from, out);
  }
  CHECK(tuning::import_attempts(to, file) == 2);
  CHECK(tuning::import_attempts(to, file) == 0);
  CHECK(to.find(failed.key) == failed);
  CHECK(to.find(kKey) == from.find(kKey));

  const std::string good = tuning::to_json(failed).dump();
  const auto refused = [&](const std::string& text, const std::string& a, const std::string& b) {
    write_file(file, text);
    CHECK_BAD_INPUT(tuning::import_attempts(to, file), a, b);
  };
  refused("", "out.jsonl", "empty");
  refused("{}\n", "line 1", "tuning");
  refused("{\"tuning\":1}\n{}\n", "line 2", "\"region\"");
  refused("{\"tuning\":1}\n" + good + "\nnonsense\n", "line 3", "");
  Json wrong = tuning::to_json(failed);
  wrong["verdict"] = "fine";
  refused("{\"tuning\":1}\n" + wrong.dump() + "\n", "line 2", "\"verdict\"");
  wrong = tuning::to_json(failed), wrong["time"] = -1;
  refused("{\"tuning\":1}\n" + wrong.dump() + "\n", "line 2", "\"time\"");
  wrong = tuning::to_json(failed), wrong["samples_us"] = {1, "x"};
  refused("{\"tuning\":1}\n" + wrong.dump() + "\n", "line 2", "\"samples_us\"");
  CHECK(attempts_in(to) == 2);
}

TEST_CASE("tuning: pruning removes what all conditions describe") {
  const TemporaryFolder folder;
  Database database(folder.path() / "t.sqlite");
  Key newer = kKey, elsewhere = kKey;
  newer.kernels = "new text", elsewhere.device = "another card";
  database.add(std::vector{attempt(kKey, 3, 100), attempt(newer, 2, 200), attempt(elsewhere, 2, 50),
                           attempt(with_plan("x"), 2, 60)});
  CHECK(database.prune({.superseded = true, .device = "another"}) == 0);
  CHECK(database.prune({.superseded = true}) == 1);
  CHECK_FALSE(database.find(kKey));
  CHECK(database.find(newer));
  CHECK(database.prune({.before = 60}) == 1);
  CHECK_FALSE(database.find(elsewhere));
  CHECK(database.prune({.region = "nothing"}) == 0);
  CHECK(database.prune({.region = "reg"}) == 2);
  CHECK(attempts_in(database) == 0);
}

TEST_CASE("tuning: what is no database of ours is refused, and left as it is") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "t.sqlite";
  write_file(file, std::string(5000, 'x'));
  CHECK_BAD_INPUT(Database{file}, "t.sqlite", "damaged, or no database");
  CHECK(read_file(file, 10'000) == std::string(5000, 'x'));

  std::filesystem::remove(file);
  {
    Database database(file);
    for (int i = 1; i < 400; ++i) database.add(attempt(with_plan(std::string(300, 'a')), i, i));
  }
  std::string bytes = read_file(file, 1 << 24);
  REQUIRE(bytes.size() > 50'000);
  bytes.replace(4096, bytes.size() - 8192, bytes.size() - 8192, '\x7f');
  write_file(file, bytes);
  CHECK_BAD_INPUT(Database(file).stats(), "t.sqlite", "damaged");
  CHECK_BAD_INPUT(Database(file).find(kKey), "t.sqlite", "damaged");

  // Of another program, and of a later format.
  const auto with = [&](std::size_t offset, char value) {
    std::filesystem::remove(file);
    {
      Database{file};
    }
    std::string header = read_file(file, 1 << 24);
    header[offset] = value;
    write_file(file, header);
  };
  with(68, 0);
  CHECK_BAD_INPUT(Database{file}, "t.sqlite", "something else");
  with(63, 2);
  CHECK_BAD_INPUT(Database{file}, "format 2", "export");
  CHECK(ac::test::error_of(Fault::job_failed, [&] {
          Database("/proc/none/t.sqlite");
        }).find("/proc") != std::string::npos);
}
