// Requests that are answered at once, against what each gives alone and what plain C++ says.
#include "answer/sequences.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <random>
#include <thread>

#include "base/files.h"
#include "grammar/grammar.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/long_run.h"
#include "tests/unit/running_toy.h"

namespace ac::test {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kPiece = 4;
constexpr std::size_t kOfPiece = 4 * (4 + 8);  // bytes of four tokens: a key, and the id in a tree

// The toy's first tokens are the letters a to h; h ends an answer.
struct Letters {
  Letters() {
    const TemporaryFolder folder;
    Json vocabulary = Json::object();
    for (std::int64_t i = 0; i < 8; ++i) vocabulary[std::string(1, static_cast<char>('a' + i))] = i;
    const Json file{{"version", "1.0"},
                    {"added_tokens", Json::array()},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", nullptr},
                    {"post_processor", nullptr},
                    {"decoder", {{"type", "Fuse"}}},
                    {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
    write_file(folder.path() / "tokenizer.json", file.dump());
    write_file(folder.path() / "generation_config.json", R"({"eos_token_id": 7})");
    tokenizer.emplace(text::Tokenizer::load(folder.path()));
    // Free choices, and more forced tokens than are run one by one.
    grammar = grammar::Compiler(*tokenizer, 50)
                  .compile({{grammar::Form::Kind::regex, "([a-d]{2}efgabc[a-g]){1,3}", ""}});
  }
  std::optional<text::Tokenizer> tokenizer;
  std::shared_ptr<const grammar::Compiled> grammar;
};

struct Asked {
  TokenRequest request;
  bool has_grammar = false;
  std::size_t stops_after = 1000;  // its client leaves
};

// What came of it: tokens, the sum of the logits that were wanted, or an error.
struct Outcome {
  Ids tokens;
  double logits = 0;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(Generator& generator, Asked asked, const Letters& letters) {
  Outcome outcome;
  TokenRequest& request = asked.request;
  if (asked.has_grammar)
    request.matcher =
        std::make_shared<grammar::Matcher>(grammar::Rules{.grammar = letters.grammar});
  try {
    generator.prompt(request, 0);
    generator.generate(request, [&](std::int64_t token) {
      outcome.tokens.push_back(token);
      if (request.wants_logits)
        for (const double logit : generator.token_logits()) outcome.logits += logit;
      return outcome.tokens.size() < asked.stops_after;
    });
    generator.keep();
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

Asked random_request(const Toy& toy, std::mt19937& random) {
  Asked asked;
  TokenRequest& request = asked.request;
  request.reuse = Reuse::exact;
  // Some begin alike.
  const auto seed = random() % 3;
  for (auto left = 1 + random() % 20; left > 0; --left)
    request.ids.push_back(
        static_cast<std::int64_t>(random() % 2 ? seed : (std::size(request.ids) * 7 + seed) % 50));
  request.max_new_tokens =
      1 + static_cast<std::int64_t>(
              random() % static_cast<std::size_t>(toy.max_context - std::ssize(request.ids)));
  if (random() % 2) request.sampling = {.temperature = 40, .top_k = 20, .seed = random()};
  if (random() % 3 == 0) request.stop_ids = {7, 23};
  switch (random() % 6) {
    case 0:
      request.penalties.presence = 1.5;
      break;
    case 1:
      request.bias = {{3, 20.0}};
      request.wants_logits = true;
      break;
    case 2:
    case 3:
      asked.has_grammar = true;
      request.stop_ids = {7};
      break;
    default:
      break;
  }
  if (random() % 4 == 0) asked.stops_after = 1 + random() % 6;
  return asked;
}

struct Several {
  explicit Several(const Running& running, std::int64_t count, std::size_t cache = 0,
                   bool records = true) {
    EngineOptions options;
    options.records = options.overlaps = records;
    options.sequences = count;
    loaded = std::make_shared<LoadedProgram>(*running.device, running.package, std::move(options));
    Sequences::MakeCache make_cache;
    if (cache > 0)
      make_cache = [cache](Engine& engine, std::int64_t piece) {
        return std::make_unique<PrefixCache>(
            engine, PrefixOptions{.memory_bytes = cache, .step = piece}, "toy");
      };
    sequences.emplace(loaded, Sequences::Options{.count = count, .piece = kPiece}, turns,
                      make_cache);
  }

  // Does this in a thread for each sequence, while this one has the device.
  void run(const std::function<void(std::size_t)>& each) {
    std::vector<std::thread> threads;
    std::atomic<std::size_t> left = sequences->count();
    for (std::size_t i = 0; i < sequences->count(); ++i)
      threads.emplace_back([&, i] {
        each(i);
        if (--left == 0) sequences->end();
      });
    sequences->work();
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<LoadedProgram> loaded;
  TimingTurn turns;
  std::optional<Sequences> sequences;
};

}  // namespace

TEST_CASE("sequences: each request has the tokens that it has alone") {
  const Letters letters;
  std::mt19937 random(4);
  int failed = 0;
  for (const auto& [window, weight] :
       {std::pair<std::int64_t, float>(0, 1.375f), {7, 1.375f}, {0, 3e38f}})
    for (const bool records : {true, false}) {
      const Running running(
          {.chunk = 8, .window = window, .draws = true, .together = 3, .weight_of_17 = weight});
      Several several(running, 3, 40 * kOfPiece, records);
      std::vector<std::vector<Asked>> asked(3);
      std::vector<std::vector<Outcome>> got(3);
      for (auto& of : asked)
        for (int i = 0; i < (is_long_run() ? 25 : 10); ++i)
          of.push_back(random_request(running.toy, random));
      several.run([&](std::size_t i) {
        for (const Asked& one : asked[i]) {
          const Sequences::Use use(*several.sequences, i);
          got[i].push_back(outcome_of(use.generator(), one, letters));
        }
      });
      CHECK(several.sequences->in_use() == 0);
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < asked[i].size(); ++j) {
          Engine engine = running.engine();
          PrefixCache cache(engine, {.step = kPiece}, "toy");
          const auto alone = package_generator(engine, &cache);
          CHECK(got[i][j] == outcome_of(*alone, asked[i][j], letters));
          failed += !got[i][j].error.empty();
        }
    }
  CHECK(failed > 3);  // with the weight that makes logits infinite; others went on
}

TEST_CASE(
    "sequences: greedy answers are those of plain C++, and all but the last token is cached") {
  const Running running({.chunk = 8, .draws = true, .together = 2});
  Several several(running, 2);
  std::barrier both(2);
  several.run([&](std::size_t i) {
    for (std::int64_t round = 0; round < 6; ++round) {
      const Sequences::Use use(*several.sequences, i);
      both.arrive_and_wait();  // so that none is alone
      const Ids ids(static_cast<std::size_t>(3 + round), static_cast<std::int64_t>(i) + round);
      TokenRequest request{.ids = ids, .max_new_tokens = 9};
      Ids answer;
      use.generator().prompt(request, 0);
      // Some end by themselves, and some by whoever hears them.
      const std::size_t most = round % 2 ? 9 : 5;
      use.generator().generate(request, [&](std::int64_t token) {
        answer.push_back(token);
        return answer.size() < most;
      });
      CHECK(answer == running.toy.follow(ids, static_cast<std::int64_t>(most)));
      CHECK(use.generator().position() == std::ssize(ids) + std::ssize(answer) - 1);
      both.arrive_and_wait();
    }
  });
  CHECK(several.sequences->cached_tokens() == 2 * (8 + 8));
  CHECK(several.sequences->alike(0, {5, 5, 9}) == 2);
  CHECK(several.sequences->alike(1, {5, 5, 9}) == 0);
}

TEST_CASE("sequences: a stream goes on between the pieces of another one's prompt") {
  const Running running({.max_context = 600, .chunk = 8, .draws = true, .together = 2});
  Several several(running, 2);
  std::atomic<int> given = 0;
  Ids stream;
  std::atomic<bool> comes = false, prompts_done = false;
  int before = 0, after = 0, pieces = 0;
  several.run([&](std::size_t i) {
    while (i == 1 && given < 1) std::this_thread::yield();  // so far the stream is alone
    const Sequences::Use use(*several.sequences, i);
    if (i == 1) comes = true;
    if (i == 0) {
      TokenRequest request{.ids = {1, 2}, .max_new_tokens = 500};
      use.generator().prompt(request, 0);
      use.generator().generate(request, [&](std::int64_t token) {
        stream.push_back(token);
        // The other one comes when this one streams.
        if (++given == 2)
          while (!comes) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        return !prompts_done;
      });
      return;
    }
    before = given;
    use.generator().prompt({.ids = Ids(161, 3)}, 0, [&] {
      ++pieces;
      return false;
    });
    after = given;
    prompts_done = true;
  });
  CHECK(pieces == 41);
  CHECK(stream == running.toy.follow({1, 2}, std::ssize(stream)));
  CHECK(after - before >= pieces - 2);
}

TEST_CASE("sequences: what a cache has of one sequence's prompt, another one takes") {
  const Running running({.chunk = 8, .draws = true, .together = 2});
  Several several(running, 2, 100 * kOfPiece);
  const Ids ids(14, 5);
  std::atomic<bool> kept = false;
  std::int64_t cached = 0;
  Ids answer;
  several.run([&](std::size_t i) {
    while (i == 1 && !kept) std::this_thread::yield();
    const Sequences::Use use(*several.sequences, i);
    TokenRequest request{.ids = ids, .max_new_tokens = 5, .reuse = Reuse::exact};
    const std::int64_t known = use.generator().prompt(request, 0);
    if (i == 1) cached = known;
    use.generator().generate(request, [&](std::int64_t token) {
      if (i == 1) answer.push_back(token);
      return true;
    });
    use.generator().keep();
    kept = true;
    if (i == 1) CHECK(several.sequences->cache_counts()->places[1].tokens == 12);
  });
  CHECK(cached == 12);
  CHECK(answer == running.toy.follow(ids, 5));
}

TEST_CASE("sequences: a lost device is the end for all, and one request's fault is not") {
  const Running running({.chunk = 8, .draws = true, .together = 2});
  Several several(running, 2);
  std::array<std::vector<std::string>, 2> heard;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      const Sequences::Use use(*several.sequences, i);
      const TokenRequest request{.ids = {1, 2}, .max_new_tokens = 20};
      const auto ask = [&](const std::function<void()>& at_the_fifth) {
        int given = 0;
        try {
          use.generator().prompt(request, 0);
          use.generator().generate(request, [&](std::int64_t) {
            if (++given == 5) at_the_fifth();
            return true;
          });
        } catch (const Error& error) {
          heard[i].emplace_back(error.what());
        }
      };
      if (i == 0) {
        ask([] { job_failed("no room"); });
        ask([] {});
        ask([] { throw Error(Fault::device_lost, "gone"); });
      } else {
        while (heard[1].empty()) ask([] {});
      }
    });
  CHECK(error_of(Fault::device_lost, [&] { several.sequences->work(); }) == "gone");
  for (std::thread& thread : threads) thread.join();
  CHECK(heard[0] == std::vector<std::string>{"no room", "gone"});
  CHECK(heard[1] == std::vector<std::string>{"gone"});
}

TEST_CASE("sequences: a piece is measured, and what cannot be is refused") {
  const Running running({.chunk = 8, .draws = true, .together = 2});
  TimingTurn turns;
  const auto made = [&](const Running& of, std::int64_t count, std::int64_t piece) {
    EngineOptions options;
    options.sequences = count;
    const auto loaded = std::make_shared<LoadedProgram>(*of.device, of.package, std::move(options));
    return Sequences(loaded, {.count = count, .piece = piece}, turns).piece();
  };
  CHECK(made(running, 2, 0) == 8);  // it takes no time to speak of
  CHECK(made(running, 2, 3) == 3);
  CHECK(error_of(Fault::wrong_usage, [&] { made(running, 2, 9); }) ==
        "the package runs prompts in steps of at most 8 tokens, and not of 9");
  CHECK(error_of(Fault::wrong_usage, [&] { made(running, 3, 0); }) ==
        running.package.string() + " has steps of up to 2 sequences: compile with --slots 3");
  const Running without({.draws = true});
  CHECK(error_of(Fault::wrong_usage, [&] { made(without, 2, 0); }) ==
        without.package.string() + " has no steps of several sequences: compile with --slots 2");
}

}  // namespace ac::test
