// The log of attempts: what it fills in, and that trouble with the database stops nobody.
#include "tuning/log.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/child.h"
#include "base/files.h"
#include "base/temporary_folder.h"
#include "tuning/kernel_hash.h"

using namespace ac;
using tuning::Database;
using tuning::Log;

namespace {

const std::vector<KernelSource> kSources = {{"entry", "#include \"a.h\"\nint x;\n"}};

tuning::TimedAttempt attempt(std::string plan) {
  tuning::TimedAttempt made;
  made.key.region = "region", made.key.plan = std::move(plan), made.key.setting = "T=1 P=7";
  made.samples = {1.5, 2};
  made.predicted = 3;
  return made;
}

struct LogFixture {
  TemporaryFolder folder;
  std::vector<std::string> said;
  std::filesystem::path file = folder.path() / "t.sqlite";
  tuning::Origin origin{"card", "NVRTC 13.0", "tiny", folder.path()};
  Log::Say say = [this](const std::string& text) { said.push_back(text); };
};

}  // namespace

TEST_CASE("log: an attempt is found under its kernels, device and toolkit") {
  LogFixture f;
  write_file(f.folder.path() / "a.h", "// first\n");
  Log(f.file, f.origin, f.say).add(attempt("p"), kSources);
  Headers headers(f.folder.path());
  const std::string hash = tuning::kernel_hash(kSources, headers);
  const auto found = Database(f.file).find({"region", "p", hash, "card", "NVRTC 13.0", "T=1 P=7"});
  REQUIRE(found);
  CHECK(found->model == "tiny");
  CHECK(found->samples == std::vector<double>{1.5, 2});
  CHECK(f.said.empty());
}

TEST_CASE("log: what is no database is left alone, and said once") {
  LogFixture f;
  write_file(f.file, std::string(10'000, 'x'));
  Log log(f.file, f.origin, f.say);
  log.add(attempt("p"), kSources);
  log.add(attempt("q"), kSources);
  REQUIRE(f.said.size() == 1);
  CHECK(f.said[0].find("left alone") != std::string::npos);
  CHECK(read_file(f.file, 1 << 20) == std::string(10'000, 'x'));
}

TEST_CASE("log: a disk that is full is said once, and what was added before is kept") {
  LogFixture f;
  const ChildTask until_full([&]() -> std::string {
    // No file may grow beyond that, which is what a full disk comes to.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1'000'000, 1'000'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    Log log(f.file, f.origin, f.say);
    int added = 0;
    for (; added < 5000 && f.said.empty(); ++added)
      log.add(attempt(fmt::format("{} {}", added, std::string(1000, 'p'))), kSources);
    for (int more = 0; more < 10; ++more) log.add(attempt("more"), kSources);
    return fmt::format("{} {} {}", added, f.said.size(), f.said.empty() ? "" : f.said[0]);
  });
  const ChildResult result = run_in_children({until_full}, 1, std::chrono::seconds(60))[0];
  REQUIRE(result.ended == "");
  CAPTURE(result.text);
  CHECK(result.text.find("left alone") != std::string::npos);
  int added = 0, said = 0;
  REQUIRE(std::sscanf(result.text.c_str(), "%d %d", &added, &said) == 2);
  CHECK(said == 1);
  CHECK(added > 10);
  CHECK(added < 5000);
  int kept = 0;
  Database(f.file).each([&](const tuning::TimedAttempt&) { ++kept; });
  CHECK(kept == added - 1);  // all but the one that did not fit
}
