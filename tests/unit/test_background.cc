// Processes beside us, and the lock that keeps two of them from doing the same.
#include "base/background.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "base/process_lock.h"
#include "base/temporary_folder.h"
#include "expect_error.h"

using namespace ac;
using namespace ac::test;
using namespace std::chrono_literals;

namespace {

bool lives(pid_t process) { return kill(process, 0) == 0; }

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

void wait_until_ended(BackgroundProcess& process) {
  while (!process.has_ended()) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("background: what it says is in its file, and it has a lower priority") {
  const TemporaryFolder folder;
  const auto log = folder.path() / "log";
  BackgroundProcess process(shell("echo out; echo err >&2; nice"), log,
                            BackgroundProcess::Lives::with_us);
  wait_until_ended(process);
  CHECK(read_file(log, 1000) ==
        "out\nerr\n" + std::to_string(getpriority(PRIO_PROCESS, 0) + 5) + "\n");
  CHECK(!lives(process.id()));  // nor is it a zombie
}

TEST_CASE("background: it is asked to end, and ends if it does not listen") {
  const TemporaryFolder folder;
  const auto log = folder.path() / "log";
  pid_t id = -1;
  {
    BackgroundProcess process(shell("trap 'echo bye; exit 0' TERM; echo ready; sleep 60 & wait"),
                              log, BackgroundProcess::Lives::with_us);
    id = process.id();
    while (read_file(log, 1000).empty()) std::this_thread::sleep_for(1ms);
    CHECK(!process.has_ended());
  }
  CHECK(!lives(id));
  CHECK(read_file(log, 1000) == "ready\nbye\n");
}

TEST_CASE("background: one that lives on does, and belongs to nobody") {
  const TemporaryFolder folder;
  const auto log = folder.path() / "log", end = folder.path() / "end";
  pid_t id = -1;
  {
    BackgroundProcess process(
        shell("while test ! -e " + end.string() + "; do sleep 0.02; done; echo done"), log,
        BackgroundProcess::Lives::on);
    id = process.id();
    CHECK(!process.has_ended());
  }
  CHECK(lives(id));
  CHECK(waitpid(id, nullptr, WNOHANG) == -1);  // no child of ours
  write_file(end, "");
  while (read_file(log, 1000).empty()) std::this_thread::sleep_for(1ms);
  CHECK(read_file(log, 1000) == "done\n");
}

TEST_CASE("background: a file that cannot be written is an error that names it") {
  const auto message = error_of(Fault::job_failed, [] {
    BackgroundProcess process(shell("true"), "/proc/none/log", BackgroundProcess::Lives::with_us);
  });
  CHECK(message.find("/proc/none/log") != std::string::npos);
}

TEST_CASE(
    "process lock: one at a time, who waits hears for whom, and the file goes with the last") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  const std::string us = fmt::format("process {}", getpid());
  std::atomic<int> inside = 0, waits = 0;
  bool alone = true, named = true;
  std::mutex hearing;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        // Some come when the file has gone with an owner for which others waited.
        std::this_thread::sleep_for(12ms * i);
        const ProcessLock lock(file, [&](const std::string& owner) {
          const std::lock_guard guard(hearing);
          named = named && owner == us, ++waits;
        });
        alone = alone && ++inside == 1;
        std::this_thread::sleep_for(20ms);
        --inside;
      });
  }
  CHECK(alone);
  CHECK(waits > 0);
  CHECK(named);
  CHECK(!std::filesystem::exists(file));
}

TEST_CASE("process lock: that of a process that was killed is taken over") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const ProcessLock lock(file);
    [[maybe_unused]] const ssize_t wrote = write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(read_file(file, 100) == std::to_string(child) + "\n");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(std::filesystem::exists(file));
  const ProcessLock lock(file, [](const std::string&) { FAIL_CHECK("nobody has it"); });
  CHECK(read_file(file, 100) == std::to_string(getpid()) + "\n");
  close(ready[0]), close(ready[1]);
}

TEST_CASE("process lock: an owner whose id the file does not tell is another process") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  const int owner = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  REQUIRE(flock(owner, LOCK_EX) == 0);
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  std::string text;
  SUBCASE("a full disk") {}
  SUBCASE("that of an owner that was killed") { text = fmt::format("{}\n", dead); }
  REQUIRE(write(owner, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  std::string heard;
  std::jthread releases;
  const ProcessLock lock(file, [&](const std::string& name) {
    heard = name;
    releases = std::jthread([&] { close(owner); });
  });
  CHECK(heard == "another process");
}

TEST_CASE("process lock: where it cannot be made is an error that names it") {
  const auto message =
      error_of(Fault::job_failed, [] { const ProcessLock lock("/proc/none/lock"); });
  CHECK(message.find("/proc/none/lock") != std::string::npos);
}
