// Workers that stay for the next question, and what becomes of the others when one ends.
#include "base/workers.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

using namespace ac;
using namespace std::chrono_literals;

namespace {

// Answers with its process and how often it was asked; ends as the question says.
std::unique_ptr<Conversation> start() {
  return std::make_unique<Conversation>([] {
    auto count = std::make_shared<int>(0);
    return [count](const std::string& question) -> std::string {
      if (question == "crash") raise(SIGKILL);
      if (question == "hang")
        for (;;) pause();
      if (question == "throw") throw std::runtime_error("lost");
      return question + " " + std::to_string(getpid()) + " " + std::to_string(++*count);
    };
  });
}

std::string word(const ChildResult& result, int which) {
  std::string text = result.text;
  for (int i = 0; i < which; ++i) text = text.substr(text.find(' ') + 1);
  return text.substr(0, text.find(' '));
}

}  // namespace

TEST_CASE("workers: one answers question after question, and is there for the next") {
  Workers workers(start, 1);
  std::vector<std::size_t> order;
  const auto first = workers.ask({"a", "b"}, 60s, [&](std::size_t i, const ChildResult& result) {
    CHECK(result.ok());
    order.push_back(i);
  });
  const auto second = workers.ask({"c"}, 60s);
  CHECK(order == std::vector<std::size_t>{0, 1});
  CHECK(word(first[0], 0) == "a");
  CHECK(word(first[1], 0) == "b");
  CHECK(word(second[0], 1) == word(first[0], 1));
  CHECK(word(second[0], 2) == "3");
  workers.dismiss();
  const auto third = workers.ask({"d"}, 60s);
  CHECK(word(third[0], 1) != word(first[0], 1));
  CHECK(word(third[0], 2) == "1");
}

TEST_CASE("workers: one that dies or hangs costs its own question alone") {
  for (const unsigned at_once : {1u, 3u}) {
    CAPTURE(at_once);
    Workers workers(start, at_once);
    const std::vector<std::string> questions = {"a",     "crash", "b", "hang", "c",
                                                "throw", "d",     "e", "f"};
    const auto results = workers.ask(questions, 1s);
    CHECK(results[1].ended == "crashed (SIGKILL)");
    CHECK(results[3].ended == "took longer than 1 s");
    CHECK(results[5].ended == "lost");
    std::set<std::string> processes;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i].ok()) continue;
      CHECK(word(results[i], 0) == questions[i]);
      processes.insert(word(results[i], 1));
    }
    CHECK(std::ranges::count_if(results, &ChildResult::ok) == 6);
    CHECK(processes.size() <= at_once + 3);
    CHECK(workers.ask({"again"}, 60s)[0].ok());
  }
}

TEST_CASE("workers: one that ends while nobody asks it costs no question") {
  Workers workers(start, 1);
  const pid_t process = std::stoi(word(workers.ask({"a"}, 60s)[0], 1));
  REQUIRE(kill(process, SIGKILL) == 0);
  siginfo_t ended;
  REQUIRE(waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOWAIT) == 0);
  const auto results = workers.ask({"b"}, 60s);
  CHECK(word(results[0], 0) == "b");
  CHECK(word(results[0], 2) == "1");
}

TEST_CASE("workers: as many at once as may be, with texts of any size") {
  Workers workers(start, 2);
  const std::string large(2'000'000, 'x');
  const auto results = workers.ask({large, large, large, large, large}, 60s);
  std::set<std::string> processes;
  for (const ChildResult& result : results) {
    CHECK(word(result, 0) == large);
    processes.insert(word(result, 1));
  }
  CHECK(processes.size() == 2);
  Workers unable(
      [] { return std::make_unique<Conversation>(std::vector<std::string>{"/no/such"}); }, 2);
  for (const ChildResult& result : unable.ask({"a", "b", "c"}, 60s))
    CHECK(result.ended.find("/no/such") != std::string::npos);
  CHECK(workers.ask({}, 60s).empty());
}
