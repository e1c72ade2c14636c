// Sequences that share a loaded program and their steps, against what each gives alone and what
// plain C++ says.
#include <doctest/doctest.h>

#include <deque>
#include <random>

#include "runtime/together.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/running_toy.h"

namespace ac::test {
namespace {

using Ids = std::vector<std::int64_t>;

const Sampling hot{.temperature = 40, .top_k = 20, .top_p = 0.95, .min_p = 0.01, .seed = 7};

struct Several {
  Several(const Running& running, std::int64_t count, bool records = true) {
    EngineOptions options;
    options.records = options.overlaps = records;
    options.sequences = count;
    loaded = std::make_shared<LoadedProgram>(*running.device, running.package, std::move(options));
    for (std::int64_t i = 0; i < count; ++i) engines.push_back(std::make_unique<Engine>(loaded));
  }

  std::vector<Engine*> all() const {
    std::vector<Engine*> all;
    for (const auto& engine : engines) all.push_back(engine.get());
    return all;
  }

  std::shared_ptr<LoadedProgram> loaded;
  std::vector<std::unique_ptr<Engine>> engines;
};

Ids random_ids(const Toy& toy, std::size_t count, std::mt19937& random) {
  Ids ids;
  while (ids.size() < count)
    ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(toy.vocab)));
  return ids;
}

std::vector<std::uint32_t> mask_of(const Toy& toy, const Ids& tokens) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>((toy.vocab + 31) / 32));
  for (const std::int64_t token : tokens)
    mask[static_cast<std::size_t>(token / 32)] |= 1u << token % 32;
  return mask;
}

TEST_CASE("sequences: engines of one program know nothing of one another") {
  for (const bool records : {true, false}) {
    const Running running({.draws = true});
    const Several several(running, 3, records);
    std::mt19937 random(2);
    std::vector<Ids> tokens(3);
    for (int round = 0; round < 60; ++round) {
      const std::size_t i = random() % 3;
      Engine& engine = *several.engines[i];
      Ids& of = tokens[i];
      if (std::ssize(of) + 4 > running.toy.max_context) engine.reset(), of.clear();
      switch (of.empty() ? 0 : random() % 4) {
        case 0: {
          const Ids more = random_ids(running.toy, 1 + random() % 3, random);
          engine.prefill(more);
          of.insert(of.end(), more.begin(), more.end());
          break;
        }
        case 1: {
          const Ids more = generate(engine, 3);
          CHECK(more == running.toy.follow(of, 3));
          of.insert(of.end(), more.begin(), more.end() - 1);
          break;
        }
        case 2:
          engine.decode(7);
          of.push_back(7);
          break;
        default: {
          const Ids allowed = random_ids(running.toy, 4, random);
          const std::vector<double> logits = running.toy.logits(of);
          const std::int64_t token = engine.choose(mask_of(running.toy, allowed), {});
          CHECK(std::ranges::find(allowed, token) != allowed.end());
          for (const std::int64_t id : allowed)
            CHECK(logits[static_cast<std::size_t>(id)] <= logits[static_cast<std::size_t>(token)]);
          engine.decode(token);
          of.push_back(token);
        }
      }
      // Of all, also those that others have run since.
      for (std::size_t each = 0; each < 3; ++each)
        if (!tokens[each].empty()) {
          CHECK(several.engines[each]->position() == std::ssize(tokens[each]));
          CHECK(several.engines[each]->logits() == running.toy.logits(tokens[each]));
        }
    }
  }
}

TEST_CASE("sequences: there are as many as there is room for") {
  const Running running;
  Several several(running, 2);
  CHECK_THROWS_WITH_AS(Engine{several.loaded}, doctest::Contains("room for no more sequences"),
                       Error);
  several.engines.pop_back();
  Engine another(several.loaded);
  another.prefill({1, 2, 3});
  CHECK(another.logits() == running.toy.logits({1, 2, 3}));
}

// A sequence that steps with others, and what it must give.
struct Follower {
  Engine* engine;
  Sampling sampling;
  Ids ids, wanted = {};

  // What the same engine gives alone, from the prompt on.
  void foresee(Engine& alone, std::int64_t count) {
    alone.reset();
    alone.sample(sampling);
    alone.prefill(ids);
    wanted = generate(alone, count);
  }
};

TEST_CASE("together: each sequence has the tokens that it has alone") {
  std::mt19937 random(3);
  for (const DType dtype : {DType::i64, DType::i32})
    for (const bool records : {true, false}) {
      const Running running({.ids = dtype, .draws = true, .together = 4});
      const Several several(running, 4, records);
      Engine alone = running.engine();
      Together together(several.loaded);
      CHECK(together.most() == 4);
      for (int round = 0; round < 6; ++round) {
        std::vector<Follower> followers;
        for (Engine* const engine : several.all()) {
          Follower of{engine, random() % 2 ? hot : Sampling{},
                      random_ids(running.toy, 1 + random() % 17, random)};
          of.foresee(alone, running.toy.max_context - std::ssize(of.ids));
          engine->reset();
          engine->sample(of.sampling);
          engine->prefill(of.ids);
          of.ids.push_back(engine->chosen());
          followers.push_back(of);
        }
        std::deque<std::vector<Follower*>> under_way;
        const auto take = [&] {
          const std::vector<std::int32_t> tokens = together.tokens();
          CHECK(tokens.size() == under_way.front().size());
          for (std::size_t i = 0; i < tokens.size(); ++i)
            under_way.front()[i]->ids.push_back(tokens[i]);
          under_way.pop_front();
        };
        for (int step = 0; step < 24; ++step) {
          std::vector<Follower*> some;
          std::vector<Engine*> engines;
          for (Follower& of : followers)
            if (random() % 4 != 0 && of.engine->position() < running.toy.max_context)
              some.push_back(&of);
          std::ranges::shuffle(some, random);
          for (Follower* const of : some) engines.push_back(of->engine);
          if (some.empty()) continue;
          together.step(engines);
          under_way.push_back(some);
          while (under_way.size() > random() % 2) take();
          // One of them goes on alone in between, which changes nothing for the others.
          if (step % 7 == 3 && under_way.empty()) {
            Follower& of = followers[random() % 4];
            if (of.engine->position() + 1 < running.toy.max_context) {
              of.engine->replay(1);
              of.ids.push_back(of.engine->chosen());
            }
          }
        }
        while (!under_way.empty()) take();
        for (const Follower& of : followers) {
          const Ids got(of.ids.begin() + running.toy.max_context - std::ssize(of.wanted),
                        of.ids.end());
          CHECK(got == Ids(of.wanted.begin(), of.wanted.begin() + std::ssize(got)));
          const Ids run(of.ids.begin(), of.ids.end() - 1);
          CHECK(of.engine->position() == std::ssize(run));
          CHECK(of.engine->logits() == running.toy.logits(run));
        }
      }
    }
}

TEST_CASE("together: masks, told tokens and ends are each sequence's own") {
  const Running running({.draws = true, .together = 3});
  const Several several(running, 3);
  Together together(several.loaded);
  const std::vector<Engine*> all = several.all();
  const std::vector<Ids> prompts = {{3, 1, 4}, {1, 5, 9, 2}, {6, 5}};
  for (std::size_t i = 0; i < 3; ++i) all[i]->prefill(prompts[i]);

  // The first may choose one token alone; the second runs another than it chose; the third as
  // ever.
  all[0]->allow(mask_of(running.toy, {23}));
  all[1]->tell(11);
  const std::int64_t first = running.toy.next(prompts[0]), third = running.toy.next(prompts[2]);
  together.step(all);
  std::vector<std::int32_t> tokens = together.tokens();
  CHECK(tokens[0] == 23);
  CHECK(tokens[1] == running.toy.next({1, 5, 9, 2, 11}));
  CHECK(tokens[2] == running.toy.next({6, 5, third}));
  CHECK(all[0]->logits() == running.toy.logits({3, 1, 4, first}));
  // A choice under another mask, after a step with others; then none.
  CHECK(all[0]->choose(mask_of(running.toy, {31}), {}) == 31);
  CHECK(all[1]->logits() == running.toy.logits({1, 5, 9, 2, 11}));
  all[0]->allow({});
  together.step(all);
  tokens = together.tokens();
  CHECK(tokens[0] == running.toy.next({3, 1, 4, first, 31}));

  // Steps beyond an end are void.
  all[0]->end_after(1, {});
  all[1]->end_after(-1, {tokens[1]});
  all[2]->end_after(-1, {});
  const std::int64_t begun = all[2]->position();
  for (int i = 0; i < 3; ++i) together.step(all), together.tokens();
  for (Engine* const engine : all) engine->settle(running.toy.max_context);
  CHECK(all[0]->position() == 6);
  CHECK(all[1]->position() == 6);
  CHECK(all[2]->position() == begun + 3);
  all[2]->settle(begun + 1);
  CHECK(all[2]->position() == begun + 1);
}

TEST_CASE("together: what cannot be") {
  const Running running({.draws = true, .together = 2});
  const Several several(running, 3);
  Together together(several.loaded);
  const std::vector<Engine*> all = several.all();
  for (Engine* const engine : all) engine->prefill({1, 2});
  CHECK_THROWS_WITH_AS(together.step(all), doctest::Contains("steps of up to 2 sequences"), Error);
  all[0]->pretend(running.toy.max_context);
  CHECK_THROWS_WITH_AS(together.step(std::span(all).first(2)), doctest::Contains("holds 40 tokens"),
                       Error);

  const Running without({.draws = true});
  const Several one(without, 1);
  CHECK(Together(one.loaded).most() == 0);
}

TEST_CASE("programs of several sequences: what is wrong with them is said") {
  const Running running({.draws = true, .together = 2});
  const auto refused = [&](const auto& change) {
    Json json = running.json();
    for (std::size_t i : {2, 3}) change(json.at("phases").at(i));
    try {
      program_from_json(json, "it");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused([](Json&) {}).empty());
  CHECK(refused([](Json& phase) {
          phase.at("launches").at(0)["each_row"] = false;
        }).find("takes the ids of one sequence for several") != std::string::npos);
  CHECK(refused([](Json& phase) {
          phase.at("masked").at(1)["each_row"] = false;
        }).find("choices under a mask are made for each row") != std::string::npos);
  CHECK(refused([](Json& phase) { phase.at("masked").clear(); }).find("0 launches that choose") !=
        std::string::npos);
  CHECK(refused([](Json& phase) {
          phase["rows"] = "all", phase["draw"] = phase["masked"];
        }).find("runs for each row") != std::string::npos);
  CHECK(refused([](Json& phase) {
          phase["rows"] = "some";
        }).find("is not \"last\", \"all\" or \"each\"") != std::string::npos);
  CHECK(refused([](Json& phase) { phase["max_tokens"] = 9; }).find("have up to 9 tokens") !=
        std::string::npos);
}

}  // namespace
}  // namespace ac::test
