// Drawing a token on the host device: which tokens are kept, how often each is drawn, and what is
// refused.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/json.h"
#include "program/draw.h"
#include "tests/tools/source_folder.h"
#include "tests/unit/draw_case.h"

namespace ac::kernels {
namespace {

constexpr DrawPlan usual{};
constexpr DrawPlan narrow{.threads = 128};

#define DRAW_TEST_KERNEL(type, plan, pass) \
  AC_DRAW_KERNEL(draw_##type##_##plan##_##pass, (DrawOp{Type::type, DrawPass::pass}), plan)
#define DRAW_TEST_KERNELS(type, plan)  \
  DRAW_TEST_KERNEL(type, plan, coarse) \
  DRAW_TEST_KERNEL(type, plan, top_k)  \
  DRAW_TEST_KERNEL(type, plan, top_p)  \
  DRAW_TEST_KERNEL(type, plan, choose)
DRAW_TEST_KERNELS(f32, usual)
DRAW_TEST_KERNELS(f16, usual)
DRAW_TEST_KERNELS(bf16, usual)
DRAW_TEST_KERNELS(f32, narrow)

#define CASE(type, plan)                                                                         \
  DrawCase {                                                                                     \
    #type "_" #plan, Type::type, plan, {                                                         \
      draw_##type##_##plan##_coarse, draw_##type##_##plan##_top_k, draw_##type##_##plan##_top_p, \
          draw_##type##_##plan##_choose                                                          \
    }                                                                                            \
  }
const std::vector<DrawCase> cases = {CASE(f32, usual), CASE(f16, usual), CASE(bf16, usual),
                                     CASE(f32, narrow)};
const DrawCase &f32_case = cases[0], &narrow_case = cases[3];

std::vector<float> random_logits(std::size_t vocab, unsigned seed, float scale = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value(0, scale);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = value(random);
  return logits;
}

// The least likely token that the kernel kept.
std::vector<bool> kept_by(const DrawRun& run, const DrawSettings& s) {
  const double largest = *std::max_element(run.logits().begin(), run.logits().end());
  const double farthest = s.min_p > 0 ? -std::log(static_cast<double>(s.min_p)) : 32;
  const bool filters = s.top_k > 0 || s.top_p < 1;
  std::vector<bool> kept;
  for (const double logit : run.logits()) {
    const double distance = (largest - logit) / static_cast<double>(s.temperature);
    kept.push_back(distance <= farthest && distance < 32 &&
                   (!filters || distance * (draw_keys / 32.0) < run.limit() + 1.0));
  }
  return kept;
}

// Where they differ for no reason that rounding would be.
std::string disagreement(const DrawRun& run, const DrawSettings& s) {
  constexpr double kRounding = 2e-5;
  const std::vector<bool> got = kept_by(run, s), most = tokens_kept(run.logits(), s, kRounding),
                          least = tokens_kept(run.logits(), s, -kRounding);
  for (std::size_t i = 0; i < got.size(); ++i)
    if ((got[i] && !most[i]) || (!got[i] && least[i]))
      return fmt::format("token {} is {}", i, got[i] ? "kept" : "dropped");
  return {};
}

const std::vector<DrawSettings> many_settings = {
    {1, 0, 1, 0, 1},         {0.7f, 0, 1, 0, 2},          {1, 50, 1, 0, 3},
    {1.3f, 1, 1, 0, 4},      {1, 0, 0.9f, 0, 5},          {2, 0, 0.999f, 0, 6},
    {1, 0, 1, 0.05f, 7},     {0.8f, 40, 0.95f, 0.02f, 8}, {1, 1 << 30, 1, 0, 9},
    {100, 700, 0.5f, 0, 10}, {1, 0, 1e-9f, 0, 11},        {1, 0, 1, 1, 12},
    {0.05f, 9, 0.6f, 0, 13}};

TEST_CASE("draw: keeps and draws what double precision does") {
  unsigned seed = 0;
  for (DrawCase c : cases)
    for (const std::size_t vocab : {1, 2, 31, 1024, 1025, 3003}) {
      c.skip = seed % 4, c.seed = ++seed;
      DrawRun run(c, random_logits(vocab, seed));
      for (const DrawSettings& settings : many_settings) {
        CAPTURE(c.name);
        CAPTURE(vocab);
        CAPTURE(settings.seed);
        for (int position = 3; position < 5; ++position) {
          const int token = run.draw(settings, position);
          CHECK(may_draw(run.logits(), settings, position, token, 1e-4));
        }
        CHECK(disagreement(run, settings) == "");
      }
      CHECK(run.error() == "");
    }
}

TEST_CASE("draw: the kept set where logits are far enough apart is exactly the same") {
  std::vector<float> logits(3000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(i * 7919 % 3000) * 0.0078125f;
  DrawRun run(f32_case, logits);
  for (const int k : {0, 1, 2, 17, 999, 2999})
    for (const float p : {1.f, 0.97f, 0.503f, 0.011f}) {
      if (k == 0 && p == 1) continue;
      const DrawSettings settings{1.25f, k, p, 0, 1};
      run.draw(settings, 5);
      CHECK(kept_by(run, settings) == tokens_kept(run.logits(), settings));
    }
  CHECK(run.error() == "");
}

TEST_CASE("draw: follows the probabilities") {
  // Chi-square with 11 degrees of freedom: beyond 31.3 once in a thousand.
  const std::vector<float> logits = {0.5f, 2, -1, 1.5f, 1, 0, 2.2f, -0.5f, 1.9f, -3, 0.7f, 1.1f};
  DrawRun run(narrow_case, logits);
  for (const float temperature : {0.6f, 1.f, 3.f}) {
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit / temperature));
    std::map<int, int> drawn;
    constexpr int kDraws = 2000;
    for (int i = 0; i < kDraws; ++i)
      ++drawn[run.draw({temperature, 0, 1, 0, static_cast<unsigned long long>(i / 100)}, i % 100)];
    double chi_square = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double want = kDraws * std::exp(static_cast<double>(logits[i] / temperature)) / total;
      const double off = drawn[static_cast<int>(i)] - want;
      chi_square += off * off / want;
    }
    CHECK(chi_square < 31.3);
  }
  CHECK(run.error() == "");
}

TEST_CASE("draw: follows the probabilities of what is left, and neighbours are independent") {
  const std::vector<float> logits = {3, 2.5f, 2, 1.5f, 1, 0.5f, 0};
  DrawRun run(narrow_case, logits);
  const DrawSettings top{1, 3, 1, 0, 42};
  std::map<int, int> drawn;
  std::map<std::pair<int, int>, int> pairs;
  int before = 0;
  constexpr int kDraws = 1500;
  for (int i = 0; i < kDraws; ++i) {
    const int token = run.draw(top, i);
    ++drawn[token], ++pairs[{before, token}];
    before = token;
  }
  CHECK(drawn.size() == 3);
  const double total = std::exp(3) + std::exp(2.5) + std::exp(2);
  const auto share = [&](int i) { return std::exp(3 - 0.5 * i) / total; };
  double chi_square = 0;
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b) {
      const double want = kDraws * share(a) * share(b), off = pairs[{a, b}] - want;
      chi_square += off * off / want;
    }
  CHECK(chi_square < 27.9);  // 9 degrees: once in a thousand
}

TEST_CASE("draw: the same request gives the same token, whatever ran before") {
  for (const DrawCase& c : cases) {
    const std::vector<float> logits = random_logits(2100, 5);
    const DrawSettings one{1, 40, 0.9f, 0, 7}, other{1, 0, 0.99f, 0, 7};
    std::vector<int> first, second;
    DrawRun run(c, logits);
    for (int position = 3; position < 13; ++position) first.push_back(run.draw(one, position));
    for (unsigned seed = 1; seed < 4; ++seed) {
      DrawCase shuffled = c;
      shuffled.seed = seed, shuffled.schedule = static_cast<Schedule>(seed % 3);
      DrawRun again(shuffled, logits);
      second.clear();
      for (int position = 3; position < 13; ++position) {
        again.draw(other, position);
        second.push_back(again.draw(one, position));
      }
      CHECK(second == first);
    }
    CHECK(std::set<int>(first.begin(), first.end()).size() > 2);
  }
}

TEST_CASE("draw: the limits of each setting") {
  for (const DrawCase& c : cases) {
    std::vector<float> logits = random_logits(1500, 9);
    logits[777] = 15;
    DrawRun run(c, logits);
    // The largest alone.
    for (const DrawSettings& alone :
         {DrawSettings{1, 1, 1, 0, 3}, DrawSettings{5, 0, 1e-30f, 0, 3},
          DrawSettings{5, 0, 1, 1, 3}, DrawSettings{1e-6f, 0, 1, 0, 3},
          DrawSettings{1e-38f, 20, 0.9f, 0.1f, 3}, DrawSettings{100, 1, 0.5f, 0, 3}})
      for (int position = 3; position < 23; ++position) CHECK(run.draw(alone, position) == 777);
    // Everything, about equally likely.
    std::set<int> seen;
    for (int position = 3; position < 103; ++position)
      seen.insert(run.draw({1e30f, 0, 1, 0, 3}, position));
    CHECK(seen.size() > 80);
    CHECK(run.error() == "");
  }
}

TEST_CASE("draw: ties stay together") {
  for (const DrawCase& c : cases) {
    // More equal weights than 32 bits would hold.
    DrawRun equal(c, std::vector<float>(3000, 2.5f));
    std::set<int> seen;
    for (int position = 3; position < 63; ++position)
      seen.insert(equal.draw({1, 5, 0.01f, 0.9f, 1}, position));
    CHECK(seen.size() > 50);
    CHECK(equal.limit() == 0);

    std::vector<float> logits(2000, -1.f);
    logits[100] = logits[1500] = logits[1999] = 4;
    DrawRun some(c, logits);
    seen.clear();
    for (int position = 3; position < 63; ++position)
      seen.insert(some.draw({1, 2, 1, 0, 1}, position));
    CHECK(seen == std::set<int>{100, 1500, 1999});
    CHECK(equal.error() + some.error() == "");
  }
}

TEST_CASE("draw: infinities and NaN") {
  for (const DrawCase& c : cases)
    for (const DrawSettings& settings :
         {DrawSettings{1, 0, 1, 0, 1}, DrawSettings{1, 3, 0.9f, 0, 1}}) {
      std::vector<float> logits(1400, -INFINITY);
      logits[1300] = -20;
      DrawRun one(c, logits);
      CHECK(one.draw(settings, 5) == 1300);
      CHECK(one.error() == "");
      // Where no token was chosen, none is drawn.
      logits[7] = NAN;
      DrawRun damaged(c, logits, bad_token(7, BadLogit::nan));
      CHECK(damaged.draw(settings, 5) == bad_token(7, BadLogit::nan));
      CHECK(damaged.error() == "");
    }
}

TEST_CASE("draw: transformers keeps the same tokens") {
  // Made by tests/python/make_draw_cases.py.
  const Json recorded = read_json(test_data() / "draw_cases.json");
  CHECK(recorded.size() >= 20);
  for (const Json& entry : recorded) {
    const auto logits = entry.at("logits").get<std::vector<float>>();
    const auto want = entry.at("kept").get<std::set<int>>();
    const DrawSettings settings{entry.at("temperature").get<float>(), entry.at("top_k").get<int>(),
                                entry.at("top_p").get<float>(), entry.at("min_p").get<float>(), 1};
    CAPTURE(entry.at("temperature").get<float>());
    CAPTURE(settings.top_k);
    CAPTURE(settings.top_p);
    CAPTURE(settings.min_p);
    DrawRun run(f32_case, logits);
    run.draw(settings, 5);
    const std::vector<bool> kernel = kept_by(run, settings),
                            reference = tokens_kept(run.logits(), settings);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      CHECK(kernel[i] == want.contains(static_cast<int>(i)));
      CHECK(reference[i] == want.contains(static_cast<int>(i)));
    }
    CHECK(run.error() == "");
  }
}

TEST_CASE("draw: illegal plans say why") {
  CHECK(usual.why_illegal({}) == nullptr);
  CHECK(says(DrawPlan{.threads = 64}.why_illegal({}), "threads"));
  CHECK(says(DrawPlan{.threads = 768}.why_illegal({}), "threads"));
}

}  // namespace
}  // namespace ac::kernels
