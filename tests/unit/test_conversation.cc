// Conversations with children: every question has an answer, or says how the child ended.
#include "base/conversation.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/forked.h"
#include "tests/unit/long_run.h"

using namespace ac;
using namespace std::chrono_literals;

TEST_CASE("conversation: prepared once, asked often, of any size") {
  Conversation child([] {
    auto count = std::make_shared<int>(0);
    return
        [count](const std::string& question) { return std::to_string(++*count) + " " + question; };
  });
  CHECK(child.ask("a", 60s).text == "1 a");
  const std::string large(3'000'000, 'x');
  CHECK(child.ask(large, 60s).text == "2 " + large);
  CHECK(child.ask("", 60s).text == "3 ");
}

TEST_CASE("conversation: how a child ends is said") {
  const auto ending = [](const Conversation::Answer& answer, std::chrono::seconds limit = 60s) {
    Conversation child([&] { return answer; });
    return child.ask("q", limit).ended;
  };
  CHECK(ending([](const std::string&) -> std::string {
          throw std::runtime_error("broken\nline");
        }) == "broken line");
  CHECK(ending([](const std::string&) -> std::string {
          raise(SIGKILL);
          return "";
        }) == "crashed (SIGKILL)");
  CHECK(ending([](const std::string&) -> std::string { _exit(7); }) == "ended with exit code 7");
  CHECK(ending(
            [](const std::string&) -> std::string {
              for (;;) pause();
            },
            1s) == "took longer than 1 s");
  // While it prepares, with a question that is too large to be held on the way.
  Conversation slow([]() -> Conversation::Answer {
    for (;;) pause();
  });
  const ChildResult late = slow.ask(std::string(3'000'000, 'x'), 1s);
  CHECK(late.ended == "took longer than 1 s");
  CHECK(late.seconds >= 1);
  Conversation unprepared([]() -> Conversation::Answer { throw std::runtime_error("no device"); });
  CHECK(unprepared.ask("q", 60s).ended == "no device");
}

TEST_CASE("conversation: the limit begins anew for a child that asks for patience") {
  const auto asked = [](bool patiently) {
    Conversation child([=] {
      return [=](const std::string&) -> std::string {
        for (int i = 0; i < 8; ++i) {
          usleep(200'000);
          if (patiently) ask_for_patience();
        }
        return "at last";
      };
    });
    return child.ask("q", 1s);
  };
  CHECK(asked(true).text == "at last");
  CHECK(asked(false).ended == "took longer than 1 s");
  ask_for_patience();  // here nobody asks
}

TEST_CASE("conversation: a child outlives the thread that started it, and ends with its process") {
  const Conversation::Prepare prepare = [] {
    return [](const std::string& question) {
      return question == "who" ? std::to_string(getpid()) : question;
    };
  };
  std::unique_ptr<Conversation> child;
  std::thread([&] { child = std::make_unique<Conversation>(prepare); }).join();
  CHECK(child->ask("still there", 5s).text == "still there");

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    Conversation grandchild(prepare);
    const std::string who = grandchild.ask("who", 5s).text;
    [[maybe_unused]] const ssize_t wrote = write(ends[1], who.data(), who.size());
    raise(SIGKILL);
  }
  char who[32] = {};
  REQUIRE(read(ends[0], who, sizeof who - 1) > 0);
  waitpid(parent, nullptr, 0);
  for (int i = 0; i < 500 && is_running(std::stoi(who)); ++i) std::this_thread::sleep_for(10ms);
  CHECK(!is_running(std::stoi(who)));
  close(ends[0]), close(ends[1]);
}

// A sanitizer's allocator may be locked in a process that has no thread that would unlock it.
TEST_CASE("processes: one that starts while other threads take memory needs none to begin") {
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i)
    others.emplace_back([&done] {
      std::vector<std::unique_ptr<char[]>> taken;
      while (!done) {
        for (int count = 0; count < 2000; ++count) taken.push_back(std::make_unique<char[]>(184));
        taken.clear();
      }
    });
  int stuck = 0;
  const int often = test::is_long_run() ? 200 : 60;  // sanitizers run in the long mode alone
  for (int i = 0; i < often && stuck == 0; ++i) {
    const pid_t process = start_process([] {});
    for (int waited = 0; waited < 1000 && is_running(process); ++waited)
      std::this_thread::sleep_for(10ms);
    stuck += is_running(process);
    end_process(process);
    wait_for(process);
  }
  done = true;
  for (std::thread& other : others) other.join();
  CHECK(stuck == 0);
}

TEST_CASE("conversation: with a program") {
  Conversation cat({"/bin/sh", "-c", "while read line; do echo \"+$line!\"; done"});
  CHECK(cat.ask("one", 60s).text == "one!");
  CHECK(cat.ask("two", 60s).text == "two!");
  Conversation none({"/no/such/program"});
  CHECK(none.ask("q", 60s).ended.find("/no/such/program") != std::string::npos);
  Conversation silent({"/bin/true"});
  CHECK(silent.ask("q", 60s).ended == "ended with exit code 0");
}
