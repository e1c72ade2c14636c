// What a generator keeps of the request before, and what it has from a cache, with one whose states
// tell by which steps they came.
#include "answer/generator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/files.h"
#include "base/json.h"
#include "base/temporary_folder.h"
#include "grammar/grammar.h"

namespace ac::test {
namespace {

constexpr std::int64_t kPiece = 4, kMost = 64;

// The state of a token is its step: where that began, how many tokens it had, and all tokens up to
// its end. A step of one token that was generated is another one than a prompt's.
class Traced : public Generator {
 public:
  struct State {
    std::int64_t begin = 0;
    bool generated = false;
    std::vector<std::int64_t> tokens;
    bool operator==(const State&) const = default;
  };
  explicit Traced(std::int64_t forgets = 0, bool caches = false)
      : forgets_(forgets), caches_(caches) {}

  std::vector<double> logits() override { return std::vector<double>(10); }
  std::int64_t position() const override { return std::ssize(states_); }
  const std::vector<State>& states() const { return states_; }
  std::int64_t ran = 0;  // tokens of prompts
  std::int64_t recalled = 0;
  bool damages = false;
  std::vector<std::int64_t> pieces;  // how many each piece of them had
  std::int64_t masks = 0;            // that it has chosen under

 protected:
  std::int64_t vocabulary() const override { return 10; }
  std::int64_t most_tokens() const override { return kMost; }
  std::string room() const override { return ""; }
  std::int64_t most_at_once() const override { return kPiece; }
  bool go_back(std::int64_t tokens) override {
    // As a window does.
    if (tokens > 0 && forgets_ > 0 && position() - tokens > forgets_) return false;
    states_.resize(static_cast<std::size_t>(tokens));
    ids_.resize(static_cast<std::size_t>(tokens));
    if (tokens == 0) reached_ = 0;
    return true;
  }
  std::int64_t known(const std::vector<std::int64_t>& ids) const override {
    std::int64_t end = 0;
    while (end + kPiece < std::ssize(ids) &&
           cache_.contains({ids.begin(), ids.begin() + end + kPiece}))
      end += kPiece;
    return end;
  }
  std::int64_t recall(const std::vector<std::int64_t>& ids, std::int64_t cached) override {
    CHECK(position() == cached);
    for (; cached + kPiece < std::ssize(ids); cached += kPiece) {
      const auto found = cache_.find({ids.begin(), ids.begin() + cached + kPiece});
      if (found == cache_.end()) break;
      if (damages && random_() % 8 == 0) break;  // a file that cannot be used after all
      ids_ = found->first;
      states_.insert(states_.end(), found->second.begin(), found->second.end());
      recalled += kPiece;
    }
    reached_ = std::max(reached_, position());
    return cached;
  }
  std::int64_t keep_piece(Tokens pieces, std::int64_t kept) override {
    if (!caches_) return std::ssize(pieces);
    REQUIRE(std::ssize(pieces) <= position());
    REQUIRE(std::ranges::equal(pieces, std::span(ids_).first(pieces.size())));
    const std::int64_t end = kept + kPiece;
    REQUIRE(end <= std::ssize(pieces));
    // A window may have forgotten it: then it must have been kept before.
    const std::vector<std::int64_t> ids(pieces.begin(), pieces.begin() + end);
    if (forgets_ > 0 && reached_ - kept > forgets_ + kPiece)
      REQUIRE(cache_.contains(ids));
    else
      cache_.try_emplace(ids, states_.begin() + kept, states_.begin() + end);
    return end;
  }
  bool forgets() const override { return forgets_ > 0; }
  void choose_by(const Sampling&) override {}
  void run(const std::vector<std::int64_t>& ids) override {
    ran += std::ssize(ids);
    pieces.push_back(std::ssize(ids));
    add(ids, false);
  }
  void step(std::int64_t token) override { add({token}, true); }
  std::int64_t choose(std::span<const std::uint32_t> allowed, const Sampling& sampling) override {
    ++masks;
    return Generator::choose(allowed, sampling);
  }
  void follow(std::int64_t count, const std::vector<std::int64_t>&,
              const std::function<bool(std::int64_t)>& on_token) override {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = (position() * 7) % 3;
      if (!on_token(token)) return;
      if (i + 1 < count) step(token);
    }
  }

 private:
  void add(const std::vector<std::int64_t>& ids, bool generated) {
    const std::int64_t begin = position();
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    for (std::size_t i = 0; i < ids.size(); ++i) states_.push_back({begin, generated, ids_});
    reached_ = std::max(reached_, position());
  }

  const std::int64_t forgets_;
  const bool caches_;
  std::int64_t reached_ = 0;
  std::map<std::vector<std::int64_t>, std::vector<State>> cache_;
  std::mt19937 random_{5};
  std::vector<std::int64_t> ids_;
  std::vector<State> states_;
};

}  // namespace

TEST_CASE("generator: exact reuse gives the states of a prompt that is run from its beginning") {
  std::mt19937 random(1);
  int reused = 0, inexact = 0;
  for (const auto& [forgets, caches] : {std::pair(0, false), {6, false}, {0, true}, {6, true}}) {
    Traced warm(forgets, caches), alike(forgets);
    warm.damages = true;
    std::vector<std::int64_t> talk = {1};
    for (int round = 0; round < 2000; ++round) {
      // Mostly the conversation goes on; now and then it goes back, or is another one.
      if (random() % 4 == 0) talk.resize(1 + random() % talk.size());
      for (auto more = random() % 9; more > 0; --more)
        talk.push_back(static_cast<std::int64_t>(random() % 2));
      if (talk.size() > 40) talk = {static_cast<std::int64_t>(random() % 3)};
      TokenRequest request{.ids = talk, .max_new_tokens = static_cast<std::int64_t>(random() % 6)};
      const bool stops = random() % 7 == 0;
      const auto stopped = [&, asked = 0]() mutable { return stops && ++asked > 2; };
      request.reuse = random() % 5 == 0 ? Reuse::alike : Reuse::exact;
      const std::int64_t before = warm.ran;
      const std::int64_t cached = warm.prompt(request, 0, stopped);
      if (caches && random() % 2 == 0) warm.keep();
      if (!stops) {
        CHECK(warm.ran - before == std::ssize(talk) - cached);
        if (request.reuse == Reuse::exact) {
          Traced cold;
          CHECK(cold.prompt(request, 0) == 0);
          REQUIRE(warm.states() == cold.states());
          reused += cached > 0;
        }
        warm.generate(request, [&](std::int64_t token) {
          talk.push_back(token);
          return true;
        });
      }
      // The other kind keeps more, and other states.
      TokenRequest any{.ids = request.ids, .max_new_tokens = 3};
      alike.prompt(any, 0);
      Traced cold;
      cold.prompt(any, 0);
      inexact += alike.states() != cold.states();
      alike.generate(any, [](std::int64_t) { return true; });
    }
    CHECK((warm.recalled > 1000) == caches);
  }
  CHECK(reused > 500);
  CHECK(inexact > 500);
}

TEST_CASE(
    "generator: a conversation that goes on runs what is new and the last step that was not full") {
  Traced generator;
  TokenRequest request{.ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1}, .max_new_tokens = 3};
  request.reuse = Reuse::exact;
  CHECK(generator.prompt(request, 0) == 0);
  generator.generate(request, [](std::int64_t) { return true; });
  request.ids.insert(request.ids.end(), {0, 1, 2, 3, 4});
  CHECK(generator.prompt(request, 0) == 8);
  CHECK(generator.prompt(request, 0) == 12);  // of 15; the last step gives the logits
  request.ids.resize(8);
  CHECK(generator.prompt(request, 0) == 4);
  CHECK(generator.prompt(request, 2) == 0);  // in other steps
}

TEST_CASE("generator: of two conversations that alternate, none is read again from its beginning") {
  for (const std::int64_t forgets : {0, 6}) {
    Traced generator(forgets, true);
    std::vector<std::int64_t> talks[] = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 5, 5, 5, 5}};
    for (int turn = 0; turn < 5; ++turn)
      for (auto& talk : talks) {
        TokenRequest request{.ids = talk, .max_new_tokens = 3, .reuse = Reuse::exact};
        const std::int64_t cached = generator.prompt(request, 0);
        // Whole pieces of the turn before; at first, what both begin with.
        if (turn > 0) CHECK(cached >= (std::ssize(talk) - 6) / 4 * 4);
        if (turn == 0) CHECK(cached == (&talk == talks ? 0 : 4));
        generator.generate(request, [&](std::int64_t token) {
          talk.push_back(token);
          return true;
        });
        talk.insert(talk.end(), {1, 2, 3});
      }
    CHECK(generator.recalled > 40);
  }
}

TEST_CASE("generator: bias, penalties and logits") {
  Traced generator;
  TokenRequest request{.ids = {1, 2}, .max_new_tokens = 3, .bias = {{7, 1.0}}};
  request.wants_logits = true;
  request.penalties.frequency = 0.75;
  generator.prompt(request, 0);
  std::vector<std::int64_t> tokens;
  generator.generate(request, [&](std::int64_t token) {
    tokens.push_back(token);
    CHECK(generator.token_logits() == std::vector<double>(10));  // the model's own
    return true;
  });
  CHECK(tokens == std::vector<std::int64_t>{7, 7, 0});
}

TEST_CASE("generator: what a grammar forces is run in pieces, and what it forbids is not chosen") {
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
  const auto tokenizer = text::Tokenizer::load(folder.path());
  grammar::Compiler compiler(tokenizer, 10);
  const auto grammar =
      compiler.compile({{grammar::Form::Kind::regex, "abcdef(a|b)cde[d-f]{2}", ""}});
  struct Run {
    std::vector<std::int64_t> tokens, pieces;
    bool ended = false;
    std::int64_t masks = 0;
  };
  using Bias = std::map<std::int64_t, double>;
  const auto run = [&](std::int64_t most, bool wants_logits, const Bias& bias = {{1, 5}},
                       const Sampling& sampling = {}) {
    Traced generator;
    TokenRequest request{.ids = {1, 2}, .max_new_tokens = most, .stop_ids = {7}, .bias = bias};
    request.wants_logits = wants_logits;
    request.sampling = sampling;
    request.matcher = std::make_shared<grammar::Matcher>(grammar::Rules{.grammar = grammar});
    generator.prompt(request, 0);
    Run run;
    generator.pieces.clear();
    generator.generate(request, [&](std::int64_t token) {
      run.tokens.push_back(token);
      return true;
    });
    run.pieces = generator.pieces;
    run.ended = request.matcher->ended();
    run.masks = generator.masks;
    return run;
  };
  // b is the likeliest; of equal logits, the first.
  const std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 3, 3};
  const Run whole = run(30, false);
  CHECK(whole.tokens == all);
  CHECK(whole.ended);
  CHECK(whole.pieces == std::vector<std::int64_t>{4, 4});
  const Run one_by_one = run(30, true);
  CHECK(one_by_one.tokens == all);
  CHECK(one_by_one.pieces.empty());
  CHECK(whole.masks == 0);  // the host adds the bias
  // The same choices under masks.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Sampling sampling{.temperature = seed == 0 ? 0.0 : 1.0, .seed = seed};
    const Run on_host = run(30, false, {{1, 0}}, sampling), masked = run(30, false, {}, sampling);
    CHECK(masked.tokens == on_host.tokens);
    CHECK(masked.pieces == on_host.pieces);
    CHECK(on_host.masks == 0);
    CHECK(masked.masks == 3);
  }
  for (std::int64_t most = 1; most < std::ssize(all); ++most) {
    const Run cut = run(most, false);
    CHECK(cut.tokens == std::vector<std::int64_t>(all.begin(), all.begin() + most));
    CHECK(!cut.ended);
  }
}

}  // namespace ac::test
