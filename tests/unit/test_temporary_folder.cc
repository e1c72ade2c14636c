// Temporary folders: gone with their owner, or cleaned up after it, and nobody else's.
#include "base/temporary_folder.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/forked.h"

using namespace ac;
namespace fs = std::filesystem;

namespace {

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// A process with a folder in `parent`, which it has made when this returns.
pid_t owner_in(const fs::path& parent) {
  const std::size_t before = entries(parent);
  const pid_t process = start_process([&] {
    const TemporaryFolder mine(parent, "ours-");
    std::ofstream(mine.path() / "file") << "x";
    for (;;) pause();
  });
  while (entries(parent) == before) usleep(1000);
  usleep(20'000);  // until it is locked
  return process;
}

void end(pid_t process) {
  end_process(process);
  CHECK(WIFSIGNALED(wait_for(process)));
}

}  // namespace

TEST_CASE("temporary folder: one's own, and gone at the end") {
  fs::path path;
  {
    const TemporaryFolder one, other;
    path = one.path();
    CHECK(path != other.path());
    CHECK(fs::is_empty(path));
    fs::create_directories(path / "a/b");
  }
  CHECK(!fs::exists(path));
}

TEST_CASE("temporary folder: what a killed process left is swept, and what lives is not") {
  const TemporaryFolder parent;
  const fs::path& at = parent.path();
  const pid_t killed = owner_in(at), alive = owner_in(at);
  REQUIRE(entries(at) == 2);
  TemporaryFolder::sweep(at, "ours-");
  CHECK(entries(at) == 2);
  end(killed);
  TemporaryFolder::sweep(at, "other-");
  CHECK(entries(at) == 2);
  TemporaryFolder::sweep(at, "ours-");
  CHECK(entries(at) == 1);
  end(alive);
  TemporaryFolder::sweep(at, "ours-");
  CHECK(entries(at) == 0);
}

TEST_CASE("temporary folder: nothing of others is swept") {
  const TemporaryFolder parent;
  const fs::path& at = parent.path();
  for (const char* name : {"ours-", "ours-backup", "ours-0123456789abcdeg", "ours-0123456789abcde",
                           "ours-0123456789abcdef0", "our-0123456789abcdef"})
    fs::create_directory(at / name);
  std::ofstream(at / "ours-0123456789abcdef") << "a file";
  const TemporaryFolder target;
  std::ofstream(target.path() / "precious") << "x";
  fs::create_directory_symlink(target.path(), at / "ours-fedcba9876543210");
  const std::size_t before = entries(at);
  TemporaryFolder::sweep(at, "ours-");
  CHECK(entries(at) == before);
  CHECK(fs::exists(target.path() / "precious"));
}
