// Tokens that an engine chooses under masks, against the same choice from its logits on the host.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "program/draw.h"
#include "tests/unit/contains.h"
#include "tests/unit/counting_device.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/running_toy.h"

namespace ac::test {
namespace {

using Ids = std::vector<std::int64_t>;
using Mask = std::vector<std::uint32_t>;

const Ids prompt = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 32};
// Hot, as the toy's logits are far apart.
const Sampling hot{.temperature = 40, .top_k = 20, .top_p = 0.95, .min_p = 0.01, .seed = 7};

Mask mask_of(const Toy& toy, const Ids& tokens) {
  Mask mask(static_cast<std::size_t>((toy.vocab + 31) / 32));
  for (const std::int64_t token : tokens)
    mask[static_cast<std::size_t>(token / 32)] |= 1u << token % 32;
  return mask;
}

Ids random_tokens(const Toy& toy, std::mt19937& random) {
  Ids tokens;
  const unsigned one_in = 1 + random() % 20;
  for (std::int64_t token = 0; token < toy.vocab; ++token)
    if (random() % one_in == 0) tokens.push_back(token);
  if (tokens.empty()) tokens.push_back(static_cast<std::int64_t>(random() % 50));
  return tokens;
}

std::int64_t chosen_on_host(const Toy& toy, const Ids& before, const Ids& allowed,
                            const Sampling& sampling) {
  const std::vector<double> logits = toy.logits(before);
  if (sampling.is_greedy())
    return *std::ranges::max_element(
        allowed, {}, [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; });
  std::vector<double> left(logits.size(), -std::numeric_limits<double>::infinity());
  for (const std::int64_t token : allowed)
    left[static_cast<std::size_t>(token)] = logits[static_cast<std::size_t>(token)];
  return draw_token(left, draw_settings(sampling), std::ssize(before));
}

TEST_CASE("engine: chooses under masks what the host chooses, after steps of any size") {
  std::mt19937 random(1);
  for (const DType ids : {DType::i64, DType::i32})
    for (const bool records : {true, false}) {
      const Running running({.ids = ids, .draws = true});
      EngineOptions options;
      options.records = options.overlaps = records;
      Engine engine(*running.device, running.package, std::move(options));
      for (const Sampling& sampling : {Sampling{}, hot, Sampling{.temperature = 90, .seed = 3}})
        for (const std::int64_t chunk : {0, 1, 4}) {
          engine.reset();
          engine.prefill(prompt, chunk);
          Ids tokens = prompt;
          while (std::ssize(tokens) < running.toy.max_context) {
            // Each of some masks, one after the other: none is left of the one before.
            for (int i = 0; i < 3; ++i) {
              const Ids allowed = random_tokens(running.toy, random);
              CHECK(engine.choose(mask_of(running.toy, allowed), sampling) ==
                    chosen_on_host(running.toy, tokens, allowed, sampling));
            }
            CHECK(engine.position() == std::ssize(tokens));
            CHECK(engine.logits() == running.toy.logits(tokens));
            tokens.push_back(engine.chosen());
            if (random() % 3 == 0 && std::ssize(tokens) + 2 < running.toy.max_context) {
              engine.prefill({tokens.back(), 4, 5});
              tokens.insert(tokens.end(), {4, 5});
            } else {
              engine.decode(tokens.back());
            }
          }
        }
    }
}

TEST_CASE("engine: goes on from the token that was chosen under a mask") {
  for (const Sampling& sampling : {Sampling{}, hot}) {
    const Running running({.draws = true});
    const Toy& toy = running.toy;
    Engine engine = running.engine();
    engine.prefill(prompt);
    // A text that has ended on the device says nothing about this choice.
    const Ids first = generate(engine, 3);
    Ids before = prompt;
    before.insert(before.end(), first.begin(), first.end() - 1);
    const Ids allowed = {2, 12, 40};
    const std::int64_t token = engine.choose(mask_of(toy, allowed), sampling);
    CHECK(token == chosen_on_host(toy, before, allowed, sampling));
    before.push_back(token);
    Ids expected = {token};
    for (const std::int64_t next : toy.follow(before, 9)) expected.push_back(next);
    CHECK(generate(engine, 10) == expected);
    engine.check_tokens(5);
  }
}

TEST_CASE("engine: chooses under a mask after a step with the logits of each token") {
  const Running running({.draws = true, .all_logits = 5});
  Engine engine = running.engine();
  for (const std::int64_t count : {5, 1, 3}) {
    engine.reset();
    const Ids ids(prompt.begin(), prompt.begin() + count);
    engine.run_all(ids);
    for (const Sampling& sampling : {Sampling{}, hot})
      CHECK(engine.choose(mask_of(running.toy, {1, 31, 32, 49}), sampling) ==
            chosen_on_host(running.toy, ids, {1, 31, 32, 49}, sampling));
  }
}

TEST_CASE("engine: masks that cannot be are refused") {
  const Running plain;
  Engine greedy = plain.engine();
  greedy.prefill(prompt);
  const auto refused = [](Engine& engine, const Mask& mask, const char* part,
                          const Sampling& sampling = {}) {
    CHECK(contains(error_of(Fault::wrong_usage, [&] { engine.choose(mask, sampling); }), part));
  };
  refused(greedy, mask_of(plain.toy, {1}), "compile the model again");
  const Running running({.draws = true});
  Engine engine = running.engine();
  const Mask mask = mask_of(running.toy, {1});
  refused(engine, mask, "run a prompt first");
  engine.prefill(prompt);
  refused(engine, {1}, "a mask of 1 words, and 50 tokens take 2");
  refused(engine, {1, 1, 1}, "a mask of 3 words");
  refused(engine, {0, 0}, "no token");
  refused(engine, {0, ~0u << 18}, "no token");  // behind the vocabulary
  refused(engine, mask, "temperature", {.temperature = -1});
  CHECK(engine.choose({{0, 1u << 17}}, {}) == 49);
  CHECK(engine.choose({{~0u, ~0u}}, {}) == running.toy.next(prompt));
  engine.truncate(4);
  refused(engine, mask, "run a prompt first");
}

TEST_CASE("engine: a logit that is not finite is named, whatever the mask leaves") {
  for (const float weight : {std::nanf(""), 3.4e38f / 90}) {
    const Running running({.draws = true, .weight_of_17 = weight});
    Engine engine = running.engine();
    Ids before = prompt;
    while (std::isfinite(running.toy.logits(before)[17]))
      before.push_back(running.toy.next(before));
    engine.prefill(before);
    for (const Ids& allowed : {Ids{17}, Ids{1, 2, 17}, Ids{1, 2}})
      for (const Sampling& sampling : {Sampling{}, hot})
        CHECK(contains(error_of(Fault::job_failed,
                                [&] { engine.choose(mask_of(running.toy, allowed), sampling); }),
                       "the logit of token 17 is"));
  }
}

TEST_CASE("engine: a choice under a mask moves the mask and a token, and no logits") {
  constexpr std::int64_t kVocab = 151'936, kMaskBytes = kVocab / 8;
  const Running running({.vocab = kVocab, .draws = true});
  CountingDevice device(*running.device);
  Engine engine(device, running.package);
  engine.prefill(prompt);
  std::mt19937 random(3);
  std::int64_t token = 0;
  const auto bytes_of_next = [&](const Sampling& sampling) {
    const Mask mask = mask_of(running.toy, random_tokens(running.toy, random));
    device.uploaded = device.downloaded = 0;
    if (token > 0) engine.decode(token);
    token = engine.choose(mask, sampling);
    return std::pair(device.uploaded, device.downloaded);
  };
  CHECK(bytes_of_next({}) == std::pair<std::size_t, std::size_t>(kMaskBytes, 4));
  // The token goes back to the device; the settings of a request that draws, once.
  for (int i = 0; i < 3; ++i)
    CHECK(bytes_of_next({}) == std::pair<std::size_t, std::size_t>(kMaskBytes + 8, 4));
  CHECK(bytes_of_next(hot) ==
        std::pair<std::size_t, std::size_t>(kMaskBytes + 8 + kSettingsBytes, 4));
  CHECK(bytes_of_next(hot) == std::pair<std::size_t, std::size_t>(kMaskBytes + 8, 4));
  device.downloaded = 0;
  engine.logits();
  CHECK(device.downloaded == 4 * kVocab);
}

}  // namespace
}  // namespace ac::test
