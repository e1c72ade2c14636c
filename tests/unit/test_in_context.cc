// Choosing by the latency of whole steps, on the host device with a model that is easy to follow.
#include "select/in_context.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/files.h"
#include "base/temporary_folder.h"
#include "lab/step_bench.h"
#include "lab/worker.h"
#include "runtime/package_files.h"
#include "runtime/random_values.h"
#include "tests/unit/named_phase.h"
#include "tests/unit/small_compilation.h"
#include "tests/unit/toy_package.h"

namespace ac::test {
namespace {

// The job for a step whose sites' options run its kernel so often.
StepsJob job_of(const Toy& toy, const std::filesystem::path& folder,
                const std::vector<std::vector<int>>& repeats) {
  toy.write(folder);
  Program program = toy.program();
  // Its only phase: that is what is timed.
  program.phases = {named(program, "decode")};
  Phase& phase = program.phases[0];
  const Launch work = phase.launches.at(0), advance = phase.launches.at(1);
  phase.launches.clear(), phase.notes.clear();
  const BuildResult random =
      KernelBuilder(builder_options(read_environment())).build(random_source(), {});
  StepsJob job{folder, std::get<Artifact>(random).file, {}, {}};
  const auto add = [&](const Launch& launch, int count) {
    const std::size_t begin = phase.launches.size();
    for (int i = 0; i < count; ++i) {
      phase.launches.push_back(launch);
      phase.notes.push_back("toy");
    }
    return Span{begin, phase.launches.size()};
  };
  for (std::size_t site = 0; site < repeats.size(); ++site) {
    TimedPart& part = job.parts.emplace_back(TimedPart{site, {}, false});
    for (const int count : repeats[site]) part.options.push_back(add(work, count));
  }
  job.ending = add(advance, 1);
  write_file(folder / "program.json", to_json(program).dump());
  write_digests(folder);
  return job;
}

TEST_CASE("in context: of two parts that must agree, the pair that is fastest together is found") {
  const TemporaryFolder folder;
  const Toy toy;
  const StepsJob job = job_of(toy, folder.path(), {{30, 12, 1}, {20, 1, 40}});
  // As it comes to another process.
  Conversation::Answer answer = prepare(assignment_of(line_of(Assignment{false, job})));
  const auto ask = [&](std::int64_t context, bool is_first, const std::vector<Options>& starts,
                       int seconds = 20) {
    const StepsQuestion question{context, starts, is_first, std::chrono::seconds(seconds)};
    return step_times_of(answer(line_of(question)));
  };
  const StepTimes said = ask(20, true, {{0, 0}});
  CHECK(said.options == Options{2, 1});
  CHECK(said.us < said.first_us / 2);
  CHECK(said.timed == 9);
  // One process answers for every context. What is best already stays.
  const StepTimes again = ask(30, true, {{2, 1}});
  CHECK(again.options == Options{2, 1});
  CHECK(again.us == again.first_us);
  CHECK(again.timed == 9);

  // After more tokens, what does not depend on their number has no better choice.
  CHECK(ask(30, false, {{0, 0}}).timed == 1);
  // But for what was chosen elsewhere.
  const StepTimes elsewhere = ask(30, false, {{0, 0}, {1, 1}, {2, 0}});
  CHECK(elsewhere.options == Options{1, 1});
  CHECK(elsewhere.us < elsewhere.first_us);
  CHECK(elsewhere.timed == 3);
  StepsJob by_position = job;
  by_position.parts[0].by_position = true;
  answer = prepare(Assignment{false, by_position});
  CHECK(ask(30, false, {{0, 0}}).options == Options{2, 1});

  // No time: what came first stays.
  const StepTimes stays = ask(30, true, {{0, 0}}, 0);
  CHECK(stays.options == Options{0, 0});
  CHECK(stays.us == stays.first_us);
}

TEST_CASE("in context: of many options those that are fastest in the step meet the neighbours'") {
  const TemporaryFolder folder;
  const Toy toy;
  const std::vector<int> many = {60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 1};
  const Conversation::Answer answer =
      prepare(open_host_device(), job_of(toy, folder.path(), {many, {20, 9, 1}}));
  const StepTimes said =
      step_times_of(answer(line_of(StepsQuestion{20, {{0, 0}}, true, std::chrono::seconds(20)})));
  CHECK(said.options == Options{11, 2});
  CHECK(said.timed < 12 * 3);
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
  std::chrono::steady_clock::duration waited() const override { return {}; }

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
  std::chrono::steady_clock::duration waited() const override { return {}; }

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

// Many sites in a ring, which know their neighbours only; counts how often steps were timed.
class Ring final : public StepTimer {
 public:
  explicit Ring(std::size_t sites) : sites_(sites) {}
  std::vector<double> run(const std::vector<Options>& choices) override {
    ++runs;
    std::vector<double> times;
    for (const Options& choice : choices) {
      double us = 1000;
      // Option 2 is best, but for the fifth site, which is best with 1 before its neighbour.
      for (std::size_t i = 0; i < sites_; ++i) us -= 5 * static_cast<double>(choice[i]);
      if (choice[4] == 1 && choice[5] == 2) us -= 20;
      times.push_back(us);
    }
    return times;
  }
  std::vector<double> glance(const std::vector<Options>& choices, int) override {
    return run(choices);
  }
  std::chrono::steady_clock::duration waited() const override { return {}; }

  int runs = 0;

 private:
  const std::size_t sites_;
};

TEST_CASE("in context: what is far from all that changed is not timed again") {
  constexpr std::size_t kSites = 8;
  SitePairs pairs;
  for (std::size_t i = 0; i < kSites; ++i) pairs.emplace_back(i, (i + 1) % kSites);
  const std::vector<std::size_t> count(kSites, 3);
  const auto search = [&](Ring& ring, const Options& start) {
    return search_steps(ring, pairs, count, {start}, std::chrono::seconds(60)).options;
  };
  Options best(kSites, 2);
  best[4] = 1;
  Ring ring(kSites);
  CHECK(search(ring, Options(kSites)) == best);
  // All pairs once, and the end.
  Ring same(kSites);
  CHECK(search(same, best) == best);
  CHECK(same.runs == static_cast<int>(kSites) + 1);
  // The fifth site changes with the fourth pair: of those before, the third one sees it.
  Ring one(kSites);
  CHECK(search(one, Options(kSites, 2)) == best);
  CHECK(one.runs == static_cast<int>(kSites) + 1 + 1);
}

TEST_CASE("in context: the time that others had the device is not the search's") {
  class Waiting final : public StepTimer {
   public:
    std::vector<double> run(const std::vector<Options>& choices) override {
      waited_ += std::chrono::hours(1);
      std::vector<double> times;
      for (const Options& choice : choices)
        times.push_back(1000 - 10 * double(choice[0] + choice[1]));
      return times;
    }
    std::vector<double> glance(const std::vector<Options>& choices, int) override {
      return run(choices);
    }
    std::chrono::steady_clock::duration waited() const override { return waited_; }

   private:
    std::chrono::steady_clock::duration waited_{0};
  } timer;
  CHECK(search_steps(timer, {{0, 1}}, {3, 3}, {{0, 0}}, std::chrono::seconds(60)).options ==
        Options{2, 2});
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

TEST_CASE("in context: what is chosen of fewer alternatives is known among all") {
  const auto part = [](std::size_t site, const std::vector<std::string>& names) {
    Alternatives::Part of{.site = site, .options = {}};
    for (const std::string& name : names) of.options.push_back({{}, name});
    return of;
  };
  const std::vector<std::string> first = {"a", "b1", "c", "b2"}, none = {"a", "c"}, only = {"b"};
  const Alternatives all{.sites = 3,
                         .parts = {part(1, none), part(0, first), part(2, only), part(0, first)}};
  const FewerAlternatives fewer = fewer_of(all, {{3, 1}, {0, 1}, {0}});
  const auto names = [&](std::size_t i) {
    std::string text;
    for (const Implemented& option : fewer.left.parts[i].options) text += option.note + " ";
    return text;
  };
  CHECK(names(0) == "a c ");
  CHECK(names(1) == "b2 b1 ");
  CHECK(names(2) == "b ");
  CHECK(names(3) == "b2 b1 ");
  const ContextChoice whole = fewer.whole({.from = 7, .options = {1, 1, 0}});
  CHECK(whole.from == 7);
  CHECK(whole.options == std::vector<std::size_t>{1, 1, 0});
}

TEST_CASE("in context: what several sequences can share is taken where it costs one little") {
  const auto of = [](std::int64_t context, double us) {
    InContext made;
    made.context = context, made.us = us, made.first_us = us;
    return made;
  };
  // The second and third context of each had choices of their own.
  const InContextChoices one{{{0, {0, 0}}, {200, {0, 1}}},
                             {of(100, 50), of(400, 60), of(1600, 70), of(6400, 80)}};
  InContextChoices several{{{0, {1, 0}}, {800, {1, 2}}},
                           {of(100, 51), of(400, 61.3), of(1600, 71), of(6400, 81)}};
  using Options = std::vector<std::size_t>;
  const InContextChoices made = merged(one, several, 1.02);
  REQUIRE(made.choices.size() == 3);
  CHECK(made.choices[0].from == 0);
  CHECK(made.choices[0].options == Options{1, 0});
  CHECK(made.choices[1].from == 200);  // 61.3 of 60 is too long
  CHECK(made.choices[1].options == Options{0, 1});
  CHECK(made.choices[2].from == 800);
  CHECK(made.choices[2].options == Options{1, 2});
  REQUIRE(made.contexts.size() == 4);
  CHECK(made.contexts[0].us == 51);
  CHECK(made.contexts[1].us == 60);
  CHECK(made.contexts[1].from == 200);
  CHECK(made.contexts[1].changed);
  CHECK(made.contexts[3].us == 81);
  CHECK(made.contexts[3].from == 800);
  CHECK(!made.contexts[3].changed);
  CHECK(merged(one, several, 1).choices[0].options == Options{0, 0});
  CHECK(merged(one, several, 1.03).choices[1].from == 800);
  several.contexts[2].untimed = several.contexts[3].untimed = "it could not be";
  CHECK(merged(one, several, 2).choices.back().options == Options{0, 1});
}

TEST_CASE("a job is the same after it was written and read, and an unknown one is refused") {
  const StepsJob steps{"a", "b", {{3, {{1, 2}, {4, 6}}, true}}, {7, 8}};
  const PairJob pair{"chosen", "plain", "random", "", 12, norm_and_product(DType::f32, 70), 7};
  for (const Job& job : {Job(ServeJob{}), Job(BenchJob{"p", "r", 9}), Job(steps), Job(pair)})
    for (const bool on_gpu : {false, true}) {
      const std::string line = line_of(Assignment{on_gpu, job});
      CHECK(assignment_of(line).job.index() == job.index());
      CHECK(line_of(assignment_of(line)) == line);
    }
  const auto read = std::get<StepsJob>(assignment_of(line_of(Assignment{true, steps})).job);
  REQUIRE(read.parts.size() == 1);
  CHECK(read.parts[0].options == steps.parts[0].options);
  CHECK(read.parts[0].by_position);
  CHECK(read.ending == steps.ending);
  CHECK_THROWS(assignment_of(R"({"device": "host", "job": "sing"})"));
}

TEST_CASE("in context: a process that holds a package times whatever step it is asked for") {
  const TemporaryFolder folder;
  const Toy toy;
  toy.write(folder.path());
  const BuildResult random =
      KernelBuilder(builder_options(read_environment())).build(random_source(), {});
  const BenchJob job{folder.path(), std::get<Artifact>(random).file, 20};
  const Conversation::Answer answer = prepare(assignment_of(line_of(Assignment{false, job})));
  StepBench::Step slow(40, Span{0, 1});
  slow.push_back({1, 2});
  const Samples samples = samples_of(answer(line_of(BenchQuestion{{{{0, 1}, {1, 2}}, slow}, 3})));
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].size() == 3);
  // What disturbs only adds.
  CHECK(std::ranges::min(samples[1]) > 4 * std::ranges::min(samples[0]));
  CHECK(samples_of(answer(line_of(BenchQuestion{{{{1, 2}}}, 1}))).size() == 1);
  CHECK_THROWS(answer(line_of(BenchQuestion{{{{0, 3}}}, 1})));  // it has two launches
  CHECK_THROWS(answer("nonsense"));
}

}  // namespace
}  // namespace ac::test
