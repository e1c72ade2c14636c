// The engine on the host device, with a model that is easy to follow.
#include "runtime/engine.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "program/draw.h"
#include "tests/unit/contains.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/named_phase.h"
#include "tests/unit/running_toy.h"

namespace ac::test {
namespace {

using Ids = std::vector<std::int64_t>;

const Ids prompt = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 32};

TEST_CASE("engine: a recording replayed gives what launches one by one give") {
  for (const DType ids : {DType::i64, DType::i32})
    for (const std::int64_t window : {0, 3}) {
      const Running running({.window = window, .ids = ids});
      Engine engine = running.engine();
      for (const std::int64_t chunk : {0, 1, 4, 100}) {
        engine.reset();
        engine.prefill(prompt, chunk);
        CHECK(engine.chosen() == running.toy.next(prompt));
        CHECK(generate(engine, 23) == running.toy.follow(prompt, 23));
        CHECK(engine.position() == 11 + 22);
      }
      engine.reset();
      engine.prefill(prompt);
      Ids launched = {engine.chosen()};
      for (int i = 0; i < 9; ++i) {
        engine.enqueue(engine.program().phase_of(1, engine.position()), 1);
        launched.push_back(engine.chosen());
      }
      CHECK(launched == running.toy.follow(prompt, 10));
    }
}

TEST_CASE("engine: without recordings and overlap, the same tokens") {
  const Running running;
  EngineOptions options;
  options.records = options.overlaps = false;
  Engine engine(*running.device, running.package, std::move(options));
  for (int turn = 0; turn < 3; ++turn) {
    engine.reset();
    engine.prefill(prompt, 4);
    CHECK(generate(engine, 11) == running.toy.follow(prompt, 11));
    CHECK(engine.position() == 11 + 10);
  }
}

TEST_CASE("engine: tokens that are given, then tokens that follow") {
  const Running running;
  Engine engine = running.engine();
  Ids all = prompt;
  engine.prefill(prompt);
  for (const std::int64_t id : {1, 49, 0}) {
    engine.decode(id);
    all.push_back(id);
    CHECK(engine.chosen() == running.toy.next(all));
    const std::vector<double> logits = engine.logits();
    CHECK(logits.size() == 50);
    CHECK(std::max_element(logits.begin(), logits.end()) - logits.begin() == engine.chosen());
  }
  CHECK(generate(engine, 1) == running.toy.follow(all, 1));
  CHECK(engine.position() == 14);
  CHECK(generate(engine, 0).empty());
}

TEST_CASE("engine: stops after any token, and goes on from there") {
  for (const std::int64_t window : {0, 3})
    for (std::size_t stop = 1; stop < 15; ++stop) {
      const Running running({.chunk = stop % 2 == 0 ? 2 : 12, .window = window});
      Engine engine = running.engine();
      engine.prefill(prompt);
      const Ids expected = running.toy.follow(prompt, 20);
      Ids seen;
      engine.generate(20, [&](std::int64_t id) {
        seen.push_back(id);
        return seen.size() < stop;
      });
      CHECK(seen == Ids(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(stop)));
      CHECK(engine.position() == static_cast<std::int64_t>(11 + stop - 1));
      Ids all = prompt;
      all.insert(all.end(), seen.begin(), seen.end());
      engine.decode(all.back());
      CHECK(generate(engine, 8) == running.toy.follow(all, 8));
    }
}

TEST_CASE("engine: a text ends by a stop id on the device, and steps beyond it leave no trace") {
  // Rings of 14 and of 11 slots, which allow the host to be ahead; of 4, which do not; no ring.
  for (const Toy& toy : {Toy{.chunk = 12, .window = 3}, Toy{.chunk = 9, .window = 3},
                         Toy{.chunk = 2, .window = 3}, Toy{}}) {
    const Running running(toy);
    Engine engine = running.engine();
    const Ids expected = toy.follow(prompt, 20);
    for (std::size_t at = 0; at < expected.size(); ++at) {
      const auto first = std::ranges::find(expected, expected[at]);
      const Ids text(expected.begin(), first + 1);
      // The last of those that the device knows, and one of which the host alone knows.
      for (const std::size_t stops : {1, 14, 20}) {
        CAPTURE(toy.chunk);
        CAPTURE(at);
        CAPTURE(stops);
        Ids ids(stops, 50);
        ids.back() = expected[at];
        engine.reset();
        engine.prefill(prompt);
        Ids seen;
        engine.generate(20, [&](std::int64_t id) { return seen.push_back(id), true; }, ids);
        REQUIRE(seen == text);
        Ids all = prompt;
        all.insert(all.end(), seen.begin(), seen.end());
        const std::int64_t position = std::ssize(all) - 1;
        REQUIRE(engine.position() == position);
        // As far back as a ring allows that holds one token more: each key that is needed is there.
        std::int64_t back = position;
        while (back > 0 && engine.can_truncate(back - 1)) --back;
        if (stops < 20) CHECK(back <= std::max<std::int64_t>(position + 1 - toy.slots() + 2, 0));
        for (const std::int64_t from : {std::max<std::int64_t>(back, 1), position}) {
          engine.truncate(from);
          for (std::int64_t i = from; i <= position; ++i) {
            const auto end = static_cast<std::ptrdiff_t>(i);
            engine.decode(all[static_cast<std::size_t>(i)]);
            CHECK(engine.chosen() == toy.next({all.begin(), all.begin() + end + 1}));
          }
        }
        CHECK(generate(engine, 5) == toy.follow(all, 5));
      }
    }
  }
}

TEST_CASE("engine: steps beyond the last token are void, until a token is given") {
  const Running running;
  Engine engine = running.engine();
  engine.prefill(prompt);
  const Ids made = generate(engine, 4);
  const auto step = [&] { engine.enqueue(engine.program().phase_of(1, engine.position()), 1); };
  for (int i = 0; i < 3; ++i) {
    step();
    CHECK(engine.chosen() == made.back());
  }
  Ids all = prompt;
  all.insert(all.end(), made.begin(), made.end());
  all.push_back(9);
  engine.decode(made.back()), engine.decode(9);
  CHECK(engine.position() == 11 + 5);
  CHECK(engine.chosen() == running.toy.next(all));
  // Now they are not.
  step();
  CHECK(engine.chosen() == running.toy.follow(all, 2).back());
}

TEST_CASE("engine: where the caller fails, the position is known") {
  const Running running;
  Engine engine = running.engine();
  engine.prefill(prompt);
  const Ids expected = running.toy.follow(prompt, 3);
  const auto fails = [&] {
    engine.generate(20, [](std::int64_t) -> bool { throw 5; }, {expected[2]});
  };
  CHECK_THROWS_AS(fails(), int);
  const auto run = static_cast<std::size_t>(engine.position()) - prompt.size();
  REQUIRE(run <= 2);
  Ids all = prompt;
  all.insert(all.end(), expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(run));
  engine.decode(7);
  all.push_back(7);
  CHECK(engine.chosen() == running.toy.next(all));
}

TEST_CASE("engine: a step for longer contexts is taken from there on") {
  const Running running({.chunk = 12});
  // One that sees two tokens only, which nothing but its tokens tells.
  const Toy forgetful{.chunk = 12, .window = 2};
  Json json = running.json();
  Json other = to_json(forgetful.program());
  Json later = named(other, "decode");
  later["from"] = 14;
  // It has a cache of all tokens, though.
  later["launches"][0] = named(json, "decode")["launches"][0];
  const Json with_window = named(other, "decode").at("launches")[0];
  const std::string wide = with_window.at("params");
  std::string params = later["launches"][0]["params"];
  REQUIRE(params.size() == wide.size());
  const std::size_t window = 2 * (7 * sizeof(void*) + 2 * sizeof(int));  // hexadecimal digits
  params.replace(window, 8, wide, window, 8);
  later["launches"][0]["params"] = params;
  json["phases"].push_back(later);
  running.rewrite(json);
  Engine engine = running.engine();
  engine.prefill(prompt);
  Ids all = prompt;
  int differ = 0;
  for (const std::int64_t id : {1, 49, 0, 30, 31, 32, 33}) {
    const bool is_later = engine.position() >= 14;
    engine.decode(id);
    all.push_back(id);
    CHECK(engine.chosen() == (is_later ? forgetful : running.toy).next(all));
    differ += running.toy.next(all) != forgetful.next(all) ? 1 : 0;
  }
  CHECK(differ > 4);
  json["phases"].push_back(later);
  running.rewrite(json);
  CHECK_BAD_INPUT(running.engine(), "both have steps of 1 tokens");
}

TEST_CASE("engine: short steps of a prompt are run by kernels of their own") {
  const Running running({.chunk = 8});
  // Those see so many tokens only, which nothing but what they choose tells.
  Json json = running.json();
  const auto sees = [&](std::int64_t window, std::int64_t least, std::int64_t most) {
    Json phase = json["phases"][0];
    phase["name"] = fmt::format("prefill to {}", most);
    phase["min_tokens"] = least, phase["max_tokens"] = most;
    std::string params = phase["launches"][0]["params"];
    const std::size_t at = 2 * (7 * sizeof(void*) + 2 * sizeof(int));  // hexadecimal digits
    params.replace(at, 8, fmt::format("{:02x}000000", window));
    phase["launches"][0]["params"] = params;
    return phase;
  };
  json["phases"].push_back(sees(1, 2, 2)), json["phases"].push_back(sees(2, 3, 5));
  json["phases"][0]["min_tokens"] = 6;
  running.rewrite(json);
  Engine engine = running.engine();
  const Ids long_prompt = running.toy.follow({1}, 30);
  int differ = 0;
  for (std::size_t tokens = 1; tokens <= 30; ++tokens) {
    const Ids ids(long_prompt.begin(), long_prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
    for (const std::int64_t chunk : {0, 3, 6}) {
      engine.reset();
      engine.prefill(ids, chunk);
      const auto each = static_cast<std::size_t>(chunk > 0 ? chunk : 8);
      const std::size_t last = (tokens - 1) % each + 1;  // tokens of the last step
      Toy as = running.toy;
      as.window = last == 2 ? 1 : last > 2 && last <= 5 ? 2 : 0;
      CHECK(engine.chosen() == as.next(ids));
      CHECK(engine.logits() == as.logits(ids));
      differ += as.next(ids) != running.toy.next(ids) ? 1 : 0;
      // What follows knows all tokens: they are in the cache.
      CHECK(engine.position() == static_cast<std::int64_t>(tokens));
      engine.decode(7);
      Ids all = ids;
      all.push_back(7);
      CHECK(engine.chosen() == running.toy.next(all));
    }
  }
  CHECK(differ > 10);
  json["phases"].erase(2);
  running.rewrite(json);
  CHECK_BAD_INPUT(running.engine(), "no phase has steps of 2 tokens");
  json.erase("phases");
  running.rewrite(json);
  CHECK_BAD_INPUT(running.engine(), "\"phases\" is missing");
}

TEST_CASE("engine: a step gives the logits after each of its tokens") {
  for (const std::int64_t window : {0, 3}) {
    const Running running({.window = window, .all_logits = 5});
    Engine engine = running.engine();
    const Ids text = running.toy.follow({1}, 36);
    const auto first = [&](std::size_t count) {
      return Ids(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
    };
    // Twice: the second time a recording is replayed.
    for (int turn = 0; turn < 2; ++turn)
      for (std::size_t tokens = 1; tokens <= 5; ++tokens)
        for (const std::size_t cached : {0, 1, 7, 30}) {
          engine.reset();
          engine.prefill(first(cached));
          engine.run_all({text.begin() + static_cast<std::ptrdiff_t>(cached),
                          text.begin() + static_cast<std::ptrdiff_t>(cached + tokens)});
          for (std::size_t row = 0; row < tokens; ++row)
            CHECK(engine.logits(static_cast<std::int64_t>(row)) ==
                  running.toy.logits(first(cached + row + 1)));
          CHECK(engine.logits() == running.toy.logits(first(cached + tokens)));
          CHECK(engine.position() == static_cast<std::int64_t>(cached + tokens));
          CHECK(error_of(Fault::wrong_usage, [&] {
                  engine.logits(static_cast<std::int64_t>(tokens));
                }).find("the last step left") != std::string::npos);
          CHECK(generate(engine, 3) == running.toy.follow(first(cached + tokens), 3));
          CHECK_THROWS_AS(engine.logits(1), Error);
          CHECK(engine.logits(0) == engine.logits());
        }
    const std::string longer = error_of(Fault::wrong_usage, [&] { engine.run_all(first(6)); });
    CHECK(contains(longer, "--all-logits 6"));
  }
  const Running without;
  Engine engine = without.engine();
  CHECK(contains(error_of(Fault::wrong_usage, [&] { engine.run_all({1}); }), "--all-logits 1"));
}

TEST_CASE("engine: truncate") {
  const Running running;
  Engine engine = running.engine();
  engine.prefill(prompt);
  generate(engine, 10);
  engine.truncate(5);
  CHECK(engine.position() == 5);
  CHECK(contains(error_of(Fault::wrong_usage, [&] { engine.chosen(); }), "run a prompt"));
  CHECK(contains(error_of(Fault::wrong_usage, [&] { engine.logits(); }), "run a prompt"));
  CHECK(contains(error_of(Fault::wrong_usage, [&] { generate(engine, 2); }), "run a prompt"));
  CHECK_BAD_INPUT(engine.truncate(6), "6 tokens", "5 are cached");
  CHECK_BAD_INPUT(engine.truncate(-1), "-1");
  const Ids more = {40, 41};
  engine.prefill(more);
  Ids all(prompt.begin(), prompt.begin() + 5);
  all.insert(all.end(), more.begin(), more.end());
  CHECK(generate(engine, 6) == running.toy.follow(all, 6));
}

TEST_CASE("engine: truncate where a window forgets") {
  const Running running({.chunk = 4, .window = 3});  // 6 slots
  Engine engine = running.engine();
  engine.prefill(prompt);  // keeps 5 to 10
  CHECK_BAD_INPUT(engine.truncate(6), "a layer that sees 3", "the last 6");
  engine.truncate(7);
  engine.prefill({1});
  Ids all(prompt.begin(), prompt.begin() + 7);
  all.push_back(1);
  CHECK(engine.chosen() == running.toy.next(all));
  // What is gone stays gone.
  CHECK_BAD_INPUT(engine.truncate(6), "the last 6");
  engine.reset();
  engine.prefill({1, 2, 3});
  engine.truncate(1);
  engine.prefill({7});
  CHECK(engine.chosen() == running.toy.next({1, 7}));
}

// What a request draws, one token after the other.
Ids draw(const Toy& toy, Ids tokens, std::int64_t count, const Sampling& sampling) {
  Ids drawn;
  for (; count > 0; --count) {
    drawn.push_back(draw_token(toy.logits(tokens), draw_settings(sampling),
                               static_cast<std::int64_t>(tokens.size())));
    tokens.push_back(drawn.back());
  }
  return drawn;
}

// Hot, as the toy's logits are far apart.
const Sampling hot{.temperature = 40, .top_k = 20, .top_p = 0.95, .min_p = 0.01, .seed = 7};

TEST_CASE("engine: draws tokens, in steps of any size, and the same ones again") {
  for (const DType ids : {DType::i64, DType::i32}) {
    const Running running({.ids = ids, .draws = true});
    Engine engine = running.engine();
    const Ids expected = draw(running.toy, prompt, 23, hot);
    CHECK(expected != running.toy.follow(prompt, 23));
    engine.sample(hot);
    for (const std::int64_t chunk : {0, 1, 4, 100}) {
      engine.reset();
      engine.prefill(prompt, chunk);
      CHECK(generate(engine, 23) == expected);
    }
    Sampling other = hot;
    other.seed = 8;
    engine.sample(other);
    engine.reset();
    engine.prefill(prompt);
    CHECK(generate(engine, 23) == draw(running.toy, prompt, 23, other));
    // Greedily between, with what was recorded before.
    for (int round = 0; round < 2; ++round) {
      engine.sample({});
      engine.reset();
      engine.prefill(prompt);
      CHECK(generate(engine, 23) == running.toy.follow(prompt, 23));
      engine.sample(hot);
      engine.reset();
      engine.prefill(prompt);
      CHECK(generate(engine, 23) == expected);
    }
  }
}

TEST_CASE("engine: the token after a stop is drawn as if nothing had run ahead") {
  const Running running({.draws = true});
  Engine engine = running.engine();
  engine.sample(hot);
  const Ids expected = draw(running.toy, prompt, 20, hot);
  for (std::size_t stop = 1; stop < 10; ++stop) {
    engine.reset();
    engine.prefill(prompt);
    Ids seen;
    engine.generate(20, [&](std::int64_t id) {
      seen.push_back(id);
      return seen.size() < stop;
    });
    CHECK(seen == Ids(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(stop)));
    engine.decode(seen.back());
    const Ids rest = generate(engine, 20 - static_cast<std::int64_t>(stop));
    CHECK(rest == Ids(expected.begin() + static_cast<std::ptrdiff_t>(stop), expected.end()));
  }
}

TEST_CASE("engine: sampling that cannot be is refused") {
  const Running running;
  Engine engine = running.engine();
  CHECK(contains(error_of(Fault::wrong_usage, [&] { engine.sample(hot); }), "likeliest token"));
  CHECK_NOTHROW(engine.sample({}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Sampling& bad :
       {Sampling{.temperature = -1}, Sampling{.temperature = nan}, Sampling{.temperature = 1e9},
        Sampling{.temperature = 1e-9}, Sampling{.temperature = 1, .top_k = -1},
        Sampling{.temperature = 1, .top_k = std::int64_t{1} << 40},
        Sampling{.temperature = 1, .top_p = 0}, Sampling{.temperature = 1, .top_p = 1.01},
        Sampling{.temperature = 1, .top_p = nan}, Sampling{.temperature = 1, .min_p = -0.1},
        Sampling{.temperature = 1, .min_p = 1.5}})
    CHECK_FALSE(error_of(Fault::wrong_usage, [&] { check(bad); }).empty());
}

Ids joined(const Ids& begin, const Ids& end) {
  Ids all = begin;
  all.insert(all.end(), end.begin(), end.end());
  return all;
}

// The tokens' states, piece by piece.
struct Piece {
  std::int64_t tokens;
  std::unique_ptr<Device::Memory> memory;
};

Piece saved(Engine& engine, std::int64_t begin, std::int64_t end) {
  Piece piece{end - begin, engine.device().allocate(engine.piece_bytes(end - begin))};
  engine.save(begin, end, *piece.memory);
  return piece;
}

TEST_CASE("engine: requests go on from pieces as from a prompt of their own") {
  // Rings of 10 and of 6 slots, which go round in the middle of a piece; two of them are of
  // another length than a step.
  for (const Toy& toy : {Toy{}, Toy{.window = 3}, Toy{.chunk = 4, .window = 3}})
    for (const std::int64_t piece : {3, 4}) {
      const Running running(toy);
      Engine engine = running.engine(), other = running.engine();
      std::vector<Piece> pieces;
      for (std::int64_t at = 0; at < 11; at += piece) {
        const std::int64_t end = std::min<std::int64_t>(at + piece, 11);
        engine.prefill({prompt.begin() + at, prompt.begin() + end});
        pieces.push_back(saved(engine, at, end));
        CHECK(pieces.back().memory->bytes() == 4 * static_cast<std::size_t>(end - at));
      }
      CHECK(engine.chosen() == running.toy.next(prompt));  // saving changes nothing
      for (Engine* const in : {&engine, &other})
        for (const Ids& rest :
             {Ids{1, 2, 3}, Ids{4}, Ids{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}) {
          in->reset();
          in->prefill({7, 7, 7});  // another request between
          CHECK(generate(*in, 20) == running.toy.follow({7, 7, 7}, 20));
          in->reset();
          for (const Piece& each : pieces) in->append(*each.memory, each.tokens);
          CHECK(in->position() == 11);
          CHECK(contains(error_of(Fault::wrong_usage, [&] { in->chosen(); }), "run a prompt"));
          in->prefill(rest);
          CHECK(generate(*in, 12) == running.toy.follow(joined(prompt, rest), 12));
        }
      // The first ones alone, then other tokens.
      engine.reset();
      engine.append(*pieces[0].memory, pieces[0].tokens);
      engine.prefill({9});
      CHECK(engine.chosen() ==
            running.toy.next(joined({prompt.begin(), prompt.begin() + piece}, {9})));
    }
}

TEST_CASE("engine: what a ring still holds, and that there is no room for a piece") {
  const Running running({.chunk = 4, .window = 3});  // 6 slots
  Engine engine = running.engine();
  engine.prefill(prompt);  // keeps 5 to 10
  CHECK(engine.holds(5, 11));
  CHECK_FALSE(engine.holds(4, 11));
  CHECK_FALSE(engine.holds(9, 12));
  CHECK_FALSE(engine.holds(-1, 3));
  CHECK(engine.holds(11, 11));
  const Piece last = saved(engine, 5, 11);
  engine.truncate(8);
  CHECK_FALSE(engine.holds(4, 8));  // a ring does not get back what it has lost
  CHECK(engine.holds(5, 8));
  engine.pretend(running.toy.max_context - 5);
  CHECK_BAD_INPUT(engine.append(*last.memory, 6), "the package holds 40 tokens");
}

TEST_CASE("engine: after a stop, the next request and the same one again are right") {
  for (const std::int64_t window : {0, 3})
    for (std::size_t stop = 1; stop < 12; ++stop) {
      const Running running({.chunk = 12, .window = window});
      Engine engine = running.engine();
      const auto stopped = [&](const Ids& ids) {
        engine.prefill(ids);
        Ids seen;
        engine.generate(20, [&](std::int64_t id) {
          seen.push_back(id);
          return seen.size() < stop;
        });
        return seen;
      };
      const Ids first = stopped(prompt);
      CHECK(first == running.toy.follow(prompt, static_cast<std::int64_t>(stop)));
      // A turn that follows in the same sequence.
      const Ids turn = joined(joined(prompt, first), {21, 22});
      engine.prefill({first.back(), 21, 22});
      CHECK(engine.chosen() == running.toy.next(turn));
      engine.reset();
      CHECK(stopped({8, 9}) == running.toy.follow({8, 9}, static_cast<std::int64_t>(stop)));
      engine.reset();
      CHECK(stopped(prompt) == first);
    }
}

TEST_CASE("engine: what does not fit is refused before it runs") {
  const Running running;
  Engine engine = running.engine();
  CHECK(contains(error_of(Fault::wrong_usage, [&] { generate(engine, 1); }), "run a prompt"));
  CHECK_BAD_INPUT(engine.prefill(Ids(41, 1)), "holds 40 tokens", "token 41", "--max-context");
  CHECK_BAD_INPUT(engine.prefill({1, 50}), "id 50", "vocabulary of 50");
  CHECK_BAD_INPUT(engine.prefill({-1}), "id -1");
  CHECK_BAD_INPUT(engine.decode(50), "id 50");
  CHECK(engine.position() == 0);
  engine.prefill(prompt);
  CHECK_BAD_INPUT(generate(engine, 31), "token 41");
  CHECK(generate(engine, 30).size() == 30);  // the last is not cached
  CHECK(engine.position() == 40);
  CHECK_BAD_INPUT(engine.decode(1), "token 41");
  CHECK_BAD_INPUT(engine.pretend(41), "and not 41");
}

TEST_CASE("engine: a logit that is not finite ends what is generated, and is named") {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto error = [](const std::function<void()>& run) {
    return error_of(Fault::job_failed, run);
  };
  for (const float weight : {std::nanf(""), 3.4e38f / 90}) {
    const Running running({.draws = true, .weight_of_17 = weight});
    Engine engine = running.engine();
    // The tokens before the first step with a bad logit.
    Ids right, before = prompt;
    const auto bad = [&] {
      const std::vector<double> logits = running.toy.logits(before);
      return !std::isfinite(logits[17]);
    };
    while (!bad()) {
      right.push_back(running.toy.next(before));
      before.push_back(right.back());
    }
    const std::string named =
        fmt::format("the logit of token 17 is {}", std::isnan(weight) ? weight : infinity);
    // Greedy steps are followed by up to eight more, before the host sees what they chose.
    for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1e-5, .top_k = 3}}) {
      engine.sample(sampling);
      engine.reset();
      engine.prefill(prompt);
      Ids got;
      CHECK(contains(error([&] {
                       engine.generate(25, [&](std::int64_t id) {
                         got.push_back(id);
                         return true;
                       });
                     }),
                     named));
      CHECK(got == right);
    }
    engine.sample({});
    engine.reset();
    engine.prefill(before);
    CHECK(contains(error([&] { engine.logits(); }), named));
    CHECK(contains(error([&] { engine.chosen(); }), named));
    engine.replay(3);
    CHECK(contains(error([&] { engine.check_tokens(4); }), named));
    if (!std::isnan(weight)) {
      engine.reset();
      engine.prefill(prompt);
      engine.replay(static_cast<std::int64_t>(right.size()) - 1);
      engine.check_tokens(static_cast<std::int64_t>(right.size()) - 1);
    }
  }
}

}  // namespace
}  // namespace ac::test
