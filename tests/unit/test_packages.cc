// Packages for several targets in one folder, and which of them runs where.
#include <doctest/doctest.h>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "runtime/packages.h"

using namespace ac;

TEST_CASE("packages: kernels run on their own GPUs and no others") {
  CHECK(runs_on("sm_80", 80));
  CHECK(runs_on("sm_80", 86));
  CHECK_FALSE(runs_on("sm_89", 86));
  CHECK_FALSE(runs_on("sm_80", 90));
  CHECK(runs_on("sm_90", 90));
  CHECK_FALSE(runs_on("sm_100", 103));  // built as sm_100a
  CHECK(runs_on("host", 0));
  CHECK_FALSE(runs_on("host", 90));
  CHECK_FALSE(runs_on("sm_90", 0));
}

TEST_CASE("packages: a folder of several, of which the latest that runs is taken") {
  const TemporaryFolder folder;
  const auto make = [&](const char* name) {
    std::filesystem::create_directories(folder.path() / name);
    write_file(folder.path() / name / "program.json", "{}");
  };
  CHECK(packages_in(folder.path()).empty());
  CHECK(packages_in(folder.path() / "missing").empty());
  for (const char* name : {"sm_80", "sm_86", "sm_90", "notes"}) make(name);
  std::filesystem::create_directories(folder.path() / "sm_100");  // no package
  const Packages packages = packages_in(folder.path());
  CHECK(packages.size() == 3);
  CHECK(packages.at("sm_86") == folder.path() / "sm_86");
  CHECK(target_for(80, packages) == "sm_80");
  CHECK(target_for(89, packages) == "sm_86");
  CHECK(target_for(90, packages) == "sm_90");
  CHECK(target_for(100, packages).empty());
  CHECK(target_for(0, packages).empty());
  make("host");
  CHECK(target_for(0, packages_in(folder.path())) == "host");
  CHECK(packages_in(folder.path() / "sm_90").empty());  // which is a package
}
