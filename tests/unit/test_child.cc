// Children: whatever a function does, its parent hears how it ended.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "base/child.h"

using namespace ac;
using namespace std::chrono_literals;

namespace {

using Functions = std::vector<ChildTask>;

ChildResult run_one(const std::function<std::string()>& function,
                    std::chrono::seconds limit = 60s) {
  return run_in_children({function}, 1, limit).at(0);
}

}  // namespace

TEST_CASE("texts come back in order, of any size, however many run at once") {
  for (const unsigned at_once : {0u, 1u, 3u, 100u}) {
    Functions functions;
    for (int i = 0; i < 12; ++i)
      functions.push_back([i] {
        usleep(static_cast<useconds_t>(1000 * (12 - i)));
        return std::to_string(i);
      });
    std::vector<bool> heard(functions.size());
    const auto results =
        run_in_children(functions, at_once, 60s, [&](std::size_t i, const auto& r) {
          CHECK_FALSE(heard[i]);
          CHECK(r.text == std::to_string(i));
          heard[i] = true;
        });
    REQUIRE(results.size() == functions.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      CHECK(results[i].ok());
      CHECK(results[i].text == std::to_string(i));
      CHECK(heard[i]);
    }
  }
  CHECK(run_in_children({}, 2, 60s).empty());
  CHECK(run_one([] { return std::string(); }).ok());
  const std::string large = std::string(5'000'000, 'x') + '\0' + "end";
  CHECK(run_one([&] { return large; }).text == large);
}

TEST_CASE("a crash, an exception, an exit and a hang are told apart") {
  const ChildResult crash = run_one([]() -> std::string {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit
    raise(SIGSEGV);
    return "unreachable";
  });
  CHECK_FALSE(crash.ok());
  CHECK(crash.ended == "crashed (SIGSEGV)");
  CHECK(run_one([]() -> std::string { throw std::runtime_error("no such thing"); }).ended ==
        "no such thing");
  // One that says nothing is no success.
  CHECK_FALSE(run_one([]() -> std::string { throw std::runtime_error(""); }).ok());
  CHECK_FALSE(run_one([]() -> std::string { throw 1; }).ok());
  CHECK(run_one([]() -> std::string { _exit(7); }).ended == "ended with exit code 7");
  CHECK(run_one([]() -> std::string { _exit(0); }).ended == "ended with exit code 0");
  const auto began = std::chrono::steady_clock::now();
  const ChildResult hang = run_one(
      []() -> std::string {
        for (;;) pause();
      },
      1s);
  CHECK(hang.ended == "took longer than 1 s");
  CHECK(std::chrono::steady_clock::now() - began < 10s);
}

TEST_CASE("one that fails leaves the others alone") {
  const auto results =
      run_in_children({[] { return std::string("a"); }, []() -> std::string { _exit(3); },
                       []() -> std::string {
                         for (;;) pause();
                       },
                       [] { return std::string("d"); }},
                      2, 1s);
  CHECK(results[0].text == "a");
  CHECK_FALSE(results[1].ok());
  CHECK_FALSE(results[2].ok());
  CHECK(results[3].text == "d");
}

TEST_CASE("a grandchild that keeps the pipe open does not hold the parent up") {
  const auto began = std::chrono::steady_clock::now();
  run_one(
      []() -> std::string {
        if (fork() == 0) {
          sleep(20);
          _exit(0);
        }
        return "done";
      },
      1s);
  CHECK(std::chrono::steady_clock::now() - began < 10s);
}
