// What replies about regions come to among the schedules of a step.
#include "tune/step_advice.h"

#include <doctest/doctest.h>

#include "advise/questions.h"
#include "step_fixture.h"

using namespace ac;
using namespace ac::tune;

namespace {

struct AdviceFixture : test::StepFixture {
  std::vector<Question> questions;
  std::unique_ptr<StepSpace> space;

  AdviceFixture() {
    questions = questions_about("decode", regions, plans, 0);
    complete(regions, plans);
    space = std::make_unique<StepSpace>(regions, plans, first(), StepSpaceOptions{.plans = 4});
  }

  // With a reply to one question, or to all.
  StepAdvice advice(const std::function<std::string(const Question&)>& reply) const {
    std::vector<Answer> answers;
    for (const Question& question : questions)
      answers.push_back({{}, {}, parse_advice(reply(question), question)});
    return advice_of(questions, answers);
  }
  std::vector<int> points(const StepAdvice& advice) const {
    return advised_points(*space, advice).order;
  }
  // Sites whose choices differ.
  std::vector<std::size_t> differing(int a, int b) const {
    std::vector<std::size_t> sites;
    for (std::size_t i = 0; i < space->points().sites().size(); ++i)
      if (space->points().choices(a)[i] != space->points().choices(b)[i]) sites.push_back(i);
    return sites;
  }
  int by_default() const {
    return space->points().point(std::vector<int>(space->points().sites().size(), -1));
  }
  std::string planned(int point, const std::string& signature) const {
    for (const Scheduled& part : space->schedule(point))
      if (of(part.part->space).signature == signature && part.candidate >= 0)
        return of(part.part->space).candidates[static_cast<std::size_t>(part.candidate)].id;
    return "";
  }
};

std::string id(const Question& question, std::size_t index) {
  return question.space.candidates.at(index).id;
}

}  // namespace

TEST_CASE("step advice: the first has what is advised first, the others differ in one site") {
  const AdviceFixture f;
  REQUIRE(f.questions.size() > 2);
  const std::vector<int> points = f.points(f.advice([](const Question& question) {
    Json order = {id(question, 1)};
    if (question.space.candidates.size() > 3) order.push_back(id(question, 3));
    return Json{{"order", order}}.dump();
  }));
  std::size_t with_second = 0, asked = 0;
  for (const Question& question : f.questions) {
    asked += f.planned(points.at(0), question.space.signature) == id(question, 1);
    with_second += question.space.candidates.size() > 3;
  }
  CHECK(asked == f.questions.size());
  REQUIRE(points.size() == 1 + with_second);
  REQUIRE(with_second > 1);
  double before = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < points.size(); ++i) {
    const std::vector<std::size_t> sites = f.differing(points[0], points[i]);
    REQUIRE(sites.size() == 1);
    CHECK(f.space->points().choices(points[i])[sites[0]] == 3);
    CHECK(f.space->microseconds(sites[0]) > 0);
    CHECK(f.space->microseconds(sites[0]) <= before);
    before = f.space->microseconds(sites[0]);
  }
  // What nothing is advised for is as the best predicted has it.
  for (const std::size_t site : f.differing(points[0], f.by_default()))
    CHECK(f.space->points().choices(points[0])[site] == 1);
}

TEST_CASE("step advice: preferred fusions are taken, their rivals come next") {
  const AdviceFixture f;
  const std::vector<std::size_t> by_default = f.space->fusions(f.by_default());
  int preferred = 0;
  for (const Question& asked : f.questions)
    for (std::size_t i = 0; i < asked.fusions.size(); ++i) {
      const FusionChoice& choice = asked.fusions[i];
      const StepAdvice advice = f.advice([&](const Question& question) -> std::string {
        if (&question != &asked) return "";
        const std::string letter(1, static_cast<char>('A' + i));
        return Json{{"fusions", {{{"option", letter}, {"opinion", "prefer"}}}}}.dump();
      });
      REQUIRE(advice.fusions.size() == (choice.current ? 0 : 1));
      const std::vector<int> points = f.points(advice);
      REQUIRE(points.size() == advice.fusions.size());
      if (choice.current || choice.option == by_default[choice.neighbourhood]) continue;
      ++preferred;
      CHECK(f.space->fusions(points[0])[choice.neighbourhood] == choice.option);
      // Two opinions about one neighbourhood.
      const std::pair own{choice.neighbourhood, choice.option};
      const std::pair rival{choice.neighbourhood, by_default[choice.neighbourhood]};
      CHECK(f.points({{}, {own, rival}}) == std::vector{points[0], f.by_default()});
      CHECK(f.points({{}, {rival, own}}) == std::vector{f.by_default(), points[0]});
    }
  CHECK(preferred > 2);
}

TEST_CASE("step advice: what is no choice comes to nothing") {
  const AdviceFixture f;
  CHECK(f.points({}).empty());
  CHECK(f.points(f.advice([](const Question&) { return "I cannot help with that."; })).empty());
  const Question& question = f.questions[0];
  const std::string& signature = question.space.signature;
  const std::size_t far = std::size_t{1} << 60;
  for (const StepAdvice& advice : std::vector<StepAdvice>{
           {{{"a region of another model", {id(question, 0)}}}, {}},
           {{{"", {""}}}, {}},
           {{{signature, {"", "fallback", "../../etc/passwd", id(question, 0) + " ", "x=y z="}}},
            {}},
           {{{signature, {id(question, 5)}}}, {}},  // legal, but not among the site's four
           {{}, {{far, 0}, {0, far}, {static_cast<std::size_t>(-1), static_cast<std::size_t>(-1)}}},
           {{}, {{f.plans.neighbourhoods.size(), 0}}}})
    CHECK(f.points(advice).empty());
  // Around what is one, nothing changes; each point once.
  const std::vector<int> clean = f.points({{{signature, {id(question, 2), id(question, 1)}}}, {}});
  CHECK(clean.size() == 2);
  CHECK(clean == f.points({{{signature,
                             {"no", id(question, 2), id(question, 2), "", id(question, 1),
                              id(question, 2), std::string(100'000, 'x')}},
                            {"another", {id(question, 3)}}},
                           {{far, far}}}));
}
