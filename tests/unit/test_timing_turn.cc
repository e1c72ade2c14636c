// Turns at a device: answers go side by side, measurements alone, and no answer waits for two.
#include "base/timing_turn.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/temporary_folder.h"

using namespace ac;
using namespace std::chrono_literals;

namespace {

struct TurnsFile {
  TemporaryFolder folder;
  std::filesystem::path file = folder.path() / "turns";
};

// Whether a measurement has begun within some time.
struct Measurer {
  std::atomic<bool> begun = false, heard = false;
  std::jthread thread;
  explicit Measurer(const std::filesystem::path& file)
      : thread([this, file] {
          TimingTurn turns(file);
          const TimingTurn::Turn turn = turns.measure([this] { heard = true; });
          begun = true;
        }) {}
};

}  // namespace

TEST_CASE("timing turn: answers go side by side, and a measurement waits for all of them") {
  const TurnsFile f;
  TimingTurn one(f.file), other(f.file);
  std::optional<TimingTurn::Turn> first(one.answer()), second(other.answer());
  Measurer measurer(f.file);
  std::this_thread::sleep_for(700ms);
  CHECK(!measurer.begun);
  CHECK(measurer.heard);  // that it waits
  first.reset();
  std::this_thread::sleep_for(50ms);
  CHECK(!measurer.begun);
  second.reset();
  measurer.thread.join();
  CHECK(measurer.begun);
}

TEST_CASE("timing turn: of measurements one after the other, an answer waits for one") {
  const TurnsFile f;
  std::atomic<int> measured = 0;
  std::atomic<bool> ends = false;
  std::jthread measurer([&] {
    for (TimingTurn turns(f.file); !ends;) {
      const TimingTurn::Turn turn = turns.measure();
      std::this_thread::sleep_for(20ms);
      ++measured;
    }
  });
  while (measured < 2) std::this_thread::sleep_for(1ms);
  for (int i = 0; i < 5; ++i) {
    TimingTurn turns(f.file);
    const int before = measured;
    const TimingTurn::Turn turn = turns.answer();
    const int after = measured;
    CHECK(after <= before + 1);
    std::this_thread::sleep_for(50ms);
    CHECK(measured == after);  // none while it answers
  }
  ends = true;
}

TEST_CASE("timing turn: two measurements are not made at once") {
  const TurnsFile f;
  TimingTurn turns(f.file);
  std::optional<TimingTurn::Turn> turn(turns.measure());
  Measurer measurer(f.file);
  std::this_thread::sleep_for(50ms);
  CHECK(!measurer.begun);
  turn.reset();
  measurer.thread.join();
  CHECK(measurer.begun);
}

TEST_CASE("timing turn: a process that dies gives its turn back") {
  const TurnsFile f;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    TimingTurn turns(f.file);
    const TimingTurn::Turn turn = turns.answer();
    [[maybe_unused]] const ssize_t wrote = write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  Measurer measurer(f.file);
  std::this_thread::sleep_for(50ms);
  CHECK(!measurer.begun);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  measurer.thread.join();
  CHECK(measurer.begun);
  close(ready[0]), close(ready[1]);
}

TEST_CASE("timing turn: without a file, or where none can be made, nobody is waited for") {
  for (const char* file : {"", "/proc/none/turns"}) {
    TimingTurn one{file}, other{file};
    const TimingTurn::Turn answer = one.answer();
    const TimingTurn::Turn measurement = other.measure();
  }
}
