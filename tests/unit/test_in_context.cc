// Choosing by the latency of whole steps, on the host device with a model that is easy to follow.
#include "select/in_context.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "lab/step_bench.h"
#include "lab/worker.h"
#include "runtime/package_files.h"
#include "runtime/random.h"
#include "tests/unit/named_phase.h"
#include "tests/unit/toy_package.h"

namespace ac::test {
namespace {

// A question's process for a step whose sites' options run its kernel so often.
Json job_of(const Toy& toy, const std::filesystem::path& folder,
            const std::vector<std::vector<int>>& repeats) {
  toy.write(folder);
  Program program = toy.program();
  // Its only phase: that is what is timed.
  program.phases = {named(program, "decode")};
  Phase& phase = program.phases[0];
  const Launch work = phase.launches.at(0), advance = phase.launches.at(1);
  phase.launches.clear(), phase.notes.clear();
  Json parts = Json::array();
  const auto add = [&](const Launch& launch, int count) {
    const std::size_t begin = phase.launches.size();
    for (int i = 0; i < count; ++i) {
      phase.launches.push_back(launch);
      phase.notes.push_back("toy");
    }
    return Json{begin, phase.launches.size()};
  };
  for (std::size_t site = 0; site < repeats.size(); ++site) {
    Json options = Json::array();
    for (const int count : repeats[site]) options.push_back(add(work, count));
    parts.push_back({{"site", site}, {"options", options}, {"by_position", false}});
  }
  const Json ending = add(advance, 1);
  write_file(folder / "program.json", to_json(program).dump());
  write_digests(folder);
  const BuildResult random =
      KernelBuilder(builder_options(read_environment())).build(random_source(), {});
  return {
      {"job", "steps"}, {"device", "host"}, {"package", folder.string()},
      {"parts", parts}, {"ending", ending}, {"random", std::get<Artifact>(random).file.string()}};
}

TEST_CASE("in context: of two parts that must agree, the pair that is fastest together is found") {
  const TemporaryFolder folder;
  const Toy toy;
  const Json job = job_of(toy, folder.path(), {{30, 12, 1}, {20, 1, 40}});
  REQUIRE(is_conversation(job));
  Conversation::Answer answer = prepare_job(job);
  const auto ask = [&](std::int64_t context, bool is_first,
                       const std::vector<std::vector<int>>& starts, int seconds = 20) {
    const Json question{
        {"context", context}, {"is_first", is_first}, {"starts", starts}, {"seconds", seconds}};
    return Json::parse(answer(question.dump()));
  };
  const Json said = ask(20, true, {{0, 0}});
  CHECK(said.at("options") == Json({2, 1}));
  CHECK(said.at("us").get<double>() < said.at("first_us").get<double>() / 2);
  CHECK(said.at("timed") == 9);
  // One process answers for every context. What is best already stays.
  const Json again = ask(30, true, {{2, 1}});
  CHECK(again.at("options") == Json({2, 1}));
  CHECK(again.at("us") == again.at("first_us"));
  CHECK(again.at("timed") == 9);

  // After more tokens, what does not depend on their number has no better choice.
  CHECK(ask(30, false, {{0, 0}}).at("timed") == 1);
  // But for what was chosen elsewhere.
  const Json elsewhere = ask(30, false, {{0, 0}, {1, 1}, {2, 0}});
  CHECK(elsewhere.at("options") == Json({1, 1}));
  CHECK(elsewhere.at("us").get<double>() < elsewhere.at("first_us").get<double>());
  CHECK(elsewhere.at("timed") == 3);
  Json by_position = job;
  by_position["parts"][0]["by_position"] = true;
  answer = prepare_job(by_position);
  CHECK(ask(30, false, {{0, 0}}).at("options") == Json({2, 1}));

  // No time: what came first stays.
  const Json stays = ask(30, true, {{0, 0}}, 0);
  CHECK(stays.at("options") == Json({0, 0}));
  CHECK(stays.at("us") == stays.at("first_us"));
}

TEST_CASE("in context: of many options those that are fastest in the step meet the neighbours'") {
  const TemporaryFolder folder;
  const Toy toy;
  const std::vector<int> many = {60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 1};
  const Conversation::Answer answer = prepare_job(job_of(toy, folder.path(), {many, {20, 9, 1}}));
  const Json said = Json::parse(answer(
      Json{{"context", 20}, {"is_first", true}, {"starts", {{0, 0}}}, {"seconds", 20}}.dump()));
  CHECK(said.at("options") == Json({11, 2}));
  CHECK(said.at("timed") < 12 * 3);
}

// Steps whose latency is the sum of their options'.
class Sums final : public StepTimer {
 public:
  explicit Sums(std::vector<std::vector<double>> us) : us_(std::move(us)) {}
  std::vector<double> run(const std::vector<Options>& choices) override {
    std::vector<double> times;
    for (const Options& choice : choices) times.push_back(us_[0][choice[0]] + us_[1][choice[1]]);
    return times;
  }
  std::vector<double> glance(const std::vector<Options>& choices, int) override {
    return run(choices);
  }

 private:
  std::vector<std::vector<double>> us_;
};

TEST_CASE("in context: of twelve options eight are timed beside all of a neighbour's") {
  Sums timer({{60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 1}, {20, 9, 1}});
  const StepTimes found =
      search_steps(timer, {{0, 1}, {1, 0}}, {12, 3}, {{0, 0}}, std::chrono::seconds(60));
  CHECK(found.options == Options{11, 2});
  // All twelve beside the other's first option, eight of them beside the others; and once that one
  // has changed, the four that are left beside the last.
  CHECK(found.timed == 12 + 2 * 8 + 4);
}

// Two sites, of which an option of the second is slow but for one neighbour.
class Neighbours final : public StepTimer {
 public:
  std::vector<double> run(const std::vector<Options>& choices) override {
    std::vector<double> times;
    for (const Options& choice : choices) times.push_back(time(choice[0], choice[1]));
    return times;
  }
  std::vector<double> glance(const std::vector<Options>& choices, int) override {
    return run(choices);
  }

 private:
  static double time(std::size_t a, std::size_t b) {
    const double alone = 1000 + (a == 7 ? -20.0 : double(a));
    if (b == 11) return alone + (a == 7 ? -100 : 50);
    return alone - (b > 0 && b < 9 ? 10 + double(b) : 0);
  }
};

TEST_CASE("in context: what is slow beside the first neighbours may be fastest beside others") {
  Neighbours timer;
  const auto search = [&](std::chrono::seconds limit) {
    return search_steps(timer, {{0, 1}, {1, 0}}, {12, 12}, {{0, 0}}, limit);
  };
  const StepTimes found = search(std::chrono::seconds(60));
  CHECK(found.options == Options{7, 11});
  CHECK(found.first_us == 1000);
  CHECK(found.us == 880);
  CHECK(found.timed < 12 * 12);
  // Without time nothing changes.
  CHECK(search(std::chrono::seconds(-1)).options == Options{0, 0});
}

TEST_CASE("in context: every context is on record, with what came of it") {
  Progress quiet(true);
  using Choice = std::vector<std::size_t>;
  std::vector<std::vector<Choice>> asked;
  const auto time = [&](std::int64_t context,
                        const std::vector<Choice>& starts) -> std::variant<StepTimes, std::string> {
    asked.push_back(starts);
    if (context == 100) return StepTimes{{0, 1}, 12, 10, 4};
    if (context == 200) return StepTimes{starts[0], 11, 11, 3};
    if (context == 800) return StepTimes{{2, 1}, 14, 13, 5};
    return "crashed (SIGSEGV)";
  };
  const ContextChoice first{.from = 0, .options = {0, 0}};
  const auto [choices, contexts] =
      choose_by_context(first, {.contexts = {100, 200, 800, 3200, 6400}}, time, quiet);
  // What was chosen before is where others begin as well.
  CHECK(asked == std::vector<std::vector<Choice>>{{{0, 0}}, {{0, 1}}, {{0, 1}}, {{2, 1}, {0, 1}}});
  REQUIRE(choices.size() == 2);
  CHECK(choices[0].from == 0);
  CHECK(choices[0].options == Choice{0, 1});
  CHECK(choices[1].from == 400);  // in the middle of the two that were timed
  CHECK(choices[1].options == Choice{2, 1});

  REQUIRE(contexts.size() == 5);
  const std::vector<bool> changed = {true, false, true};
  const std::vector<std::int64_t> from = {0, 0, 400};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(contexts[i].untimed.empty());
    CHECK(contexts[i].changed == changed[i]);
    CHECK(contexts[i].from == from[i]);
  }
  CHECK(contexts[0].first_us == 12);
  CHECK(contexts[0].us == 10);
  CHECK(contexts[2].timed == 5);
  CHECK(contexts[3].context == 3200);
  CHECK(contexts[3].untimed == "crashed (SIGSEGV)");
  CHECK(contexts[4].untimed.find("fewer tokens") != std::string::npos);

  const auto never = choose_by_context(
      first, {.contexts = {100, 200}}, [](auto&&...) { return std::string("lost"); }, quiet);
  REQUIRE(never.choices.size() == 1);
  CHECK(never.choices[0].options == first.options);
  CHECK(never.contexts.size() == 2);
}

TEST_CASE("in context: a process that holds a package times whatever step it is asked for") {
  const TemporaryFolder folder;
  const Toy toy;
  toy.write(folder.path());
  const BuildResult random =
      KernelBuilder(builder_options(read_environment())).build(random_source(), {});
  const Json job{{"job", "bench"},
                 {"device", "host"},
                 {"package", folder.path().string()},
                 {"random", std::get<Artifact>(random).file.string()},
                 {"context", 20}};
  REQUIRE(is_conversation(job));
  const Conversation::Answer answer = prepare_job(job);
  StepBench::Step slow(40, Span{0, 1});
  slow.push_back({1, 2});
  const Json samples = Json::parse(answer(bench_question({{{0, 1}, {1, 2}}, slow}, 3)));
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].size() == 3);
  // What disturbs only adds.
  const auto least = [](const Json& of) { return std::ranges::min(of.get<std::vector<double>>()); };
  CHECK(least(samples[1]) > 4 * least(samples[0]));
  CHECK(Json::parse(answer(bench_question({{{1, 2}}}, 1))).size() == 1);
  CHECK_THROWS(answer(bench_question({{{0, 3}}}, 1)));  // it has two launches
  CHECK_THROWS(answer("nonsense"));
}

}  // namespace
}  // namespace ac::test
