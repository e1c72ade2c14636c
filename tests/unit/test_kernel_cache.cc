// The cache of built kernels: what its keys hold, and that crashes, races, corruption and full
// disks leave nothing broken in it.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "base/files.h"
#include "build/cache.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/kernel_folder.h"

namespace ac::test {
namespace {

namespace fs = std::filesystem;

// Runs `body` in a child, which exits with its result.
template <class Body>
pid_t in_child(Body body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    _exit(code);
  }
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("kernel cache: a second build is a hit, also for a failure") {
  const TinyKernels kernels;
  const BuildResult first = kernels.build(tiny(1));
  CHECK_FALSE(built(first).from_cache);
  CHECK(call(built(first)) == 1001);
  const BuildResult second = kernels.build(tiny(1));
  CHECK(built(second).from_cache);
  CHECK(built(second).file == built(first).file);
  CHECK(built(second).seconds == built(first).seconds);

  const KernelSource wrong{"tiny", "#include \"kernels/tiny.h\"\nint broken = offset +;\n"};
  const BuildResult third = kernels.build(wrong);
  CHECK_FALSE(failed(third).from_cache);
  CHECK(failed(third).log.starts_with("tiny.cc:2:"));
  const BuildResult fourth = kernels.build(wrong);
  CHECK(failed(fourth).from_cache);
  CHECK(failed(fourth).log == failed(third).log);
  CHECK(kernels.entries(false).size() == 2);
  CHECK(kernels.entries(true).empty());
}

TEST_CASE("kernel cache: all that affects the result is in the key") {
  const TinyKernels kernels;
  std::set<std::string> keys;
  const auto add = [&](const BuildResult& result) { keys.insert(built(result).key); };
  add(kernels.build(tiny(1)));
  CHECK(keys.size() == 1);
  add(kernels.build(tiny(2)));
  CHECK(keys.size() == 2);
  KernelSource other_name = tiny(1);
  other_name.entry = "other";
  add(kernels.build(other_name));
  CHECK(keys.size() == 3);
  // A header that is included by another, one byte, of a comment; size and time as before.
  kernels.write("kernels/inner.h", "constexpr int offset = 1000;//a\n");
  add(kernels.build(tiny(1)));
  CHECK(keys.size() == 4);
  const auto time = fs::last_write_time(kernels.folder.path() / "sources/kernels/inner.h");
  kernels.write("kernels/inner.h", "constexpr int offset = 2000;//a\n");
  fs::last_write_time(kernels.folder.path() / "sources/kernels/inner.h", time);
  const BuildResult changed = kernels.build(tiny(1));
  CHECK(call(built(changed)) == 2001);
  add(changed);
  CHECK(keys.size() == 5);
  // A header that nobody includes changes nothing; one that comes to exist does.
  kernels.write("kernels/unused.h", "x");
  add(kernels.build(tiny(1)));
  CHECK(keys.size() == 5);
  BuilderOptions options = kernels.options();
  options.checks = HostChecks::races;
  add(KernelBuilder(options).build(tiny(1), {}));
  CHECK(keys.size() == 6);

  const KernelSource hopeful{"tiny", "#include \"kernels/absent.h\"\n"};
  const BuildResult absent = kernels.build(hopeful);
  CHECK(contains(failed(absent).log, "absent.h"));
  kernels.write("kernels/absent.h", "int present;");
  CHECK_FALSE(built(kernels.build(hopeful)).from_cache);
}

TEST_CASE("kernel cache: one builder compiles what it first read") {
  const TinyKernels kernels;
  KernelBuilder builder(kernels.options());
  const BuildResult before = builder.build(tiny(1), {});
  kernels.write("kernels/inner.h", "constexpr int offset = 2000;\n");
  const BuildResult after = builder.build(tiny(2), {});
  CHECK(call(built(after)) == 1002);
  CHECK(call(built(kernels.build(tiny(2)))) == 2002);
  CHECK(call(built(before)) == 1001);
}

TEST_CASE("kernel cache: two processes build the same kernels at once") {
  const TinyKernels kernels;
  std::vector<KernelSource> sources;
  for (int i = 0; i < 8; ++i) sources.push_back(tiny(i));
  std::vector<pid_t> children;
  for (int process = 0; process < 2; ++process)
    children.push_back(in_child([&] {
      KernelBuilder builder(kernels.options());
      int good = 0;
      const std::vector<BuildResult> results = builder.build_all(sources, {});
      for (int i = 0; i < 8; ++i) {
        const auto* artifact = std::get_if<Artifact>(&results[static_cast<std::size_t>(i)]);
        if (artifact && call(*artifact) == 1000 + i) ++good;
      }
      return good;
    }));
  for (pid_t child : children) CHECK(exit_code(child) == 8);
  CHECK(kernels.entries(false).size() == 8);
  CHECK(kernels.entries(true).empty());
}

TEST_CASE("kernel cache: results come in order and are announced one at a time") {
  const TinyKernels kernels;
  std::vector<KernelSource> sources;
  for (int i = 0; i < 6; ++i) sources.push_back(tiny(i % 5));
  sources[3].text = "nonsense";
  std::multiset<std::size_t> announced;
  KernelBuilder builder(kernels.options());
  const auto results = builder.build_all(
      sources, {}, [&](std::size_t index, const BuildResult&) { announced.insert(index); });
  CHECK(announced == std::multiset<std::size_t>{0, 1, 2, 3, 4, 5});
  for (std::size_t i = 0; i < 6; ++i) {
    if (i == 3)
      CHECK(contains(failed(results[i]).log, "nonsense"));
    else
      CHECK(call(built(results[i])) == 1000 + static_cast<int>(i % 5));
  }
  CHECK(builder.build_all({}, {}).empty());
}

TEST_CASE("kernel cache: kill -9 in the middle of builds") {
  const TinyKernels kernels;
  const auto sources_of = [](int round) {
    std::vector<KernelSource> sources;
    for (int i = 0; i < 4; ++i) sources.push_back(tiny(10 * round + i));
    return sources;
  };
  constexpr int rounds = 12;
  int killed = 0;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = in_child([&] {
      KernelBuilder(kernels.options()).build_all(sources_of(round), {});
      return 0;
    });
    usleep(static_cast<useconds_t>(20'000 * (round + 1)));
    kill(child, SIGKILL);
    if (exit_code(child) == -1) ++killed;
  }
  CHECK(killed > 0);
  MESSAGE(killed << " of " << rounds << " builders were killed, " << kernels.entries(true).size()
                 << " left something unfinished");
  for (int round = 0; round < rounds; ++round) {
    const auto results = KernelBuilder(kernels.options()).build_all(sources_of(round), {});
    for (std::size_t i = 0; i < results.size(); ++i)
      CHECK(call(built(results[i])) == 1000 + 10 * round + static_cast<int>(i));
  }
  CHECK(kernels.entries(false).size() == 4 * rounds);
}

TEST_CASE("kernel cache: unfinished folders are removed when nobody has them any more") {
  const TinyKernels kernels;
  kernels.build(tiny(1));
  const fs::path left = kernels.cache() / ".unfinished-0123456789abcdef";
  fs::create_directories(left / "scratch");
  std::ofstream(left / "scratch/half.o") << "half";
  const KernelCache::Workspace owned = KernelCache(kernels.cache()).workspace();
  CHECK(built(kernels.build(tiny(1))).from_cache);
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(owned.scratch()));
}

TEST_CASE("kernel cache: harmed entries are misses and are mended") {
  const TinyKernels kernels;
  const auto flip = [](const fs::path& path, std::size_t at) {
    std::string content = read_file(path, 1u << 24);
    REQUIRE(at < content.size());
    content[at] = static_cast<char>(content[at] ^ 4);
    write_file(path, content);
  };
  const std::vector<std::function<void(const fs::path&)>> harms = {
      [](const fs::path& e) { fs::resize_file(e / "kernel.so", 100); },
      [](const fs::path& e) { fs::resize_file(e / "kernel.so", 0); },
      [](const fs::path& e) { fs::remove(e / "kernel.so"); },
      [](const fs::path& e) { std::ofstream(e / "kernel.so", std::ios::app) << "x"; },
      [&](const fs::path& e) { flip(e / "kernel.so", fs::file_size(e / "kernel.so") / 2); },
      [](const fs::path& e) { fs::remove(e / "record"); },
      [](const fs::path& e) { fs::resize_file(e / "record", 40); },
      [](const fs::path& e) { fs::resize_file(e / "record", fs::file_size(e / "record") - 1); },
      [&](const fs::path& e) { flip(e / "record", 100); },
      [](const fs::path& e) { fs::remove_all(e), std::ofstream(e) << "a file"; },
      [](const fs::path& e) { fs::remove(e / "kernel.so"), fs::create_directory(e / "kernel.so"); },
      [](const fs::path& e) { fs::remove_all(e), fs::create_directory(e); },
  };
  kernels.build(tiny(2));
  const fs::path other = kernels.entries(false)[0];
  const fs::path entry = built(kernels.build(tiny(1))).file.parent_path();
  const auto check_mended = [&] {
    const BuildResult again = kernels.build(tiny(1));
    CHECK_FALSE(built(again).from_cache);
    CHECK(call(built(again)) == 1001);
    CHECK(built(kernels.build(tiny(1))).from_cache);
    CHECK(kernels.entries(false).size() == 2);
    CHECK(kernels.entries(true).empty());
  };
  for (std::size_t i = 0; i < harms.size(); ++i) {
    INFO("harm ", i);
    harms[i](entry);
    check_mended();
  }
  // A whole and valid entry, of another kernel.
  fs::remove_all(entry);
  fs::copy(other, entry, fs::copy_options::recursive);
  check_mended();
}

TEST_CASE("kernel cache: processes that mend the same entries at once disturb nobody") {
  const TinyKernels kernels;
  std::vector<KernelSource> sources;
  for (int i = 0; i < 4; ++i) sources.push_back(tiny(i));
  KernelBuilder(kernels.options()).build_all(sources, {});
  for (const fs::path& entry : kernels.entries(false)) fs::resize_file(entry / "kernel.so", 10);
  std::vector<pid_t> children;
  for (int process = 0; process < 3; ++process)
    children.push_back(in_child([&] {
      int good = 0;
      const auto results = KernelBuilder(kernels.options()).build_all(sources, {});
      for (int i = 0; i < 4; ++i) {
        const auto* artifact = std::get_if<Artifact>(&results[static_cast<std::size_t>(i)]);
        if (artifact && call(*artifact) == 1000 + i) ++good;
      }
      return good;
    }));
  for (pid_t child : children) CHECK(exit_code(child) == 4);
  CHECK(kernels.entries(false).size() == 4);
}

TEST_CASE("kernel cache: a full disk is an error, whatever the size at which it is full") {
  int refused = 0;
  for (const rlim_t bytes : {0u, 20u, 200u, 2000u, 8000u}) {
    const TinyKernels kernels;
    const pid_t child = in_child([&] {
      signal(SIGXFSZ, SIG_IGN);  // writes fail with "File too large" instead
      const rlimit limit{bytes, bytes};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 98;
      try {
        kernels.build(tiny(1));
        return 0;
      } catch (const Error& error) {
        const std::string text = error.what();
        return error.fault() == Fault::job_failed && contains(text, "File too large") ? 1 : 2;
      }
    });
    INFO("limit ", bytes);
    const int code = exit_code(child);
    CHECK(code == 1);
    if (code == 1) ++refused;
    CHECK(kernels.entries(false).empty());
    CHECK(kernels.entries(true).empty());
    CHECK(call(built(kernels.build(tiny(1)))) == 1001);
  }
  CHECK(refused == 5);
}

// Exit codes of the next test's child.
enum { built_whole, refused_full, cannot_mount, wrong };

TEST_CASE("kernel cache: a file system that is full, or may only be read") {
  int whole = 0, refused = 0;
  for (int pages = 1; pages <= 10; ++pages) {
    const TinyKernels kernels;
    fs::create_directories(kernels.cache());
    const pid_t child = in_child([&] {
      const std::string size = "size=" + std::to_string(4 * pages) + "k";
      const std::string folder = kernels.cache();
      const char* const at = folder.c_str();
      if (unshare(CLONE_NEWNS) != 0 ||
          mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("none", at, "tmpfs", 0, size.c_str()) != 0)
        return cannot_mount;
      try {
        kernels.build(tiny(1));
      } catch (const Error& error) {
        const bool clean = kernels.entries(false).empty() && kernels.entries(true).empty();
        return clean && contains(error.what(), "No space left on device") ? refused_full : wrong;
      }
      if (mount("none", at, nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return cannot_mount;
      const BuildResult again = kernels.build(tiny(1));
      const auto* artifact = std::get_if<Artifact>(&again);
      if (!artifact || !artifact->from_cache || call(*artifact) != 1001) return wrong;
      // What it lacks is built elsewhere, for one builder alone.
      KernelBuilder builder(kernels.options());
      for (const bool again : {false, true}) {
        const BuildResult result = builder.build(tiny(2), {});
        const auto* other = std::get_if<Artifact>(&result);
        if (!other || other->from_cache != again || call(*other) != 1002) return wrong;
      }
      return kernels.entries(false).size() == 1 ? built_whole : wrong;
    });
    const int code = exit_code(child);
    if (code == cannot_mount) {
      MESSAGE("skipped: mounting a small file system needs root");
      return;
    }
    INFO(pages, " pages");
    CHECK(code != wrong);
    if (code == built_whole) ++whole;
    if (code == refused_full) ++refused;
  }
  MESSAGE(whole << " sizes were enough, " << refused << " were not");
  CHECK(whole > 0);
  CHECK(refused > 2);
}

TEST_CASE("kernel cache: a folder that cannot be used is an error that names it") {
  const TinyKernels kernels;
  BuilderOptions options = kernels.options();
  std::ofstream(kernels.folder.path() / "file") << "x";
  options.cache = kernels.folder.path() / "file/cache";
  CHECK(
      contains(error_of(Fault::job_failed, [&] { KernelBuilder builder(options); }), "file/cache"));
  if (geteuid() == 0) return;  // whom permissions do not bind
  kernels.build(tiny(1));
  fs::permissions(kernels.cache(), fs::perms::owner_read | fs::perms::owner_exec);
  CHECK(built(kernels.build(tiny(1))).from_cache);
  CHECK(call(built(kernels.build(tiny(2)))) == 1002);
  CHECK(kernels.entries(false).size() == 1);
  fs::permissions(kernels.cache(), fs::perms::owner_all);
}

}  // namespace
}  // namespace ac::test
