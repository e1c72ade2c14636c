// Selection on the host device: what is tried and given up, and fallbacks for everything.
#include "select/choose_phase.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "build/cache_record.h"
#include "emit/plan_file.h"
#include "regions_models.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

struct Fixture : FreshBuilder {
  Progress quiet{true};

  // What chooses the token can be part of the product, or not.
  static CompiledPhase planned() {
    CompiledPhase phase;
    phase.regions = analyse(norm_and_product(DType::f32, 70));
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = 1, .P = 0}});
    return phase;
  }

  CompiledPhase select(std::size_t tries) {
    CompiledPhase phase = planned();
    Lab lab(builder, unmeasured());
    const std::vector<StateSpec> states;
    Selector selector(phase, states, {.tries = tries, .max_context = 64}, lab);
    selector.run(quiet);
    const Alternatives alternatives = selector.alternatives();
    CHECK(selector.confirm({first_choice(alternatives)}, quiet));
    phase.selections = selector.selections({first_choice(alternatives)});
    phase.abandoned = selector.abandoned();
    parts = implemented(alternatives, first_choice(alternatives));
    return phase;
  }

  // As if the gate had rejected all that it has admitted so far.
  void reject_all() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "verdicts"))
      write_file(entry.path(),
                 record_text(entry.path().stem(),
                             {{"verdict", {{"kind", "rejected"}, {"why", "planted"}}}}));
  }

  std::vector<Implemented> parts;
};

std::set<std::string> tried(const CompiledPhase& phase) {
  std::set<std::string> ids;
  for (const Selection& selection : phase.selections)
    for (const Attempt& attempt : selection.attempts) ids.insert(attempt.candidate);
  for (const Abandoned& given_up : phase.abandoned)
    for (const Attempt& attempt : given_up.attempts) ids.insert(attempt.candidate);
  return ids;
}

}  // namespace

TEST_CASE("selection: what was tried for a cut that is given up stays on record") {
  Fixture f;
  const CompiledPhase first = f.select(1);
  CHECK(first.abandoned.empty());
  REQUIRE(!tried(first).empty());
  f.reject_all();
  const CompiledPhase second = f.select(1);
  REQUIRE(!second.abandoned.empty());
  for (const Abandoned& given_up : second.abandoned) {
    CHECK(!given_up.ops.empty());
    REQUIRE(given_up.attempts.size() == 1);
    CHECK(given_up.attempts[0].outcome.why == "planted");
    for (const Selection& selection : second.selections)
      CHECK(selection.signature != given_up.signature);
  }
  for (const std::string& id : tried(first)) CHECK(tried(second).count(id) == 1);
}

TEST_CASE("selection: with no candidates, fallbacks compute everything, the token too") {
  Fixture f;
  const CompiledPhase phase = f.select(0);
  bool chooses = false;
  for (const Selection& selection : phase.selections) {
    CHECK(selection.family == "fallback");
    CHECK(!selection.trials.empty());
    chooses = chooses || selection.argmax;
  }
  CHECK(chooses);
  const Buffer token{.role = Buffer::Role::token};
  int writers = 0;
  for (const Implemented& part : f.parts)
    writers += std::ranges::find(part.made.buffers, token) != part.made.buffers.end();
  CHECK(writers == 1);
}

TEST_CASE("selection: cuts of a step of several tokens are timed as whole steps") {
  FreshBuilder f;
  Progress quiet(true);
  constexpr std::int64_t kTokens = 4;
  CompiledPhase phase;
  phase.spec.max_tokens = kTokens;
  phase.regions = analyse(gemma_like(1, Dim(Symbol::T)));
  phase.plans = plan(phase.regions, device_info("host"),
                     {.max_candidates = 1, .at = {.S = -1, .T = kTokens, .P = 0}});
  const StepGraph& step = phase.regions.step;
  Program program;
  program.model = "gemma", program.target = "host", program.max_context = 32;
  program.states = {kv_state(DType::bf16, 2, 8, 8, 16, "", 32)};  // as the step's only layer needs
  program.vocab = 50, program.dtype = DType::bf16;
  program.stores["checkpoint"] = "/nowhere";  // weights are random
  LabOptions options = f.unmeasured();
  options.here = true;
  Lab lab(f.builder, options);
  Selector selector(phase, program.states, {.tries = 0}, lab);
  selector.run(quiet);
  std::vector<NearCut> cuts = selector.near_cuts();
  REQUIRE(!cuts.empty());  // fallbacks may cost alike, however they are grouped
  // One more has all parts ten times.
  NearCut& many = cuts.emplace_back(NearCut{"all of it again", {}});
  for (int i = 0; i < 10; ++i)
    many.parts.insert(many.parts.end(), cuts[0].parts.begin(), cuts[0].parts.end());
  const Cuts made = selector.as_implemented(cuts);
  REQUIRE(made.cuts.size() == cuts.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) CHECK(made.cuts[i].size() == cuts[i].parts.size());
  const NodeId ids = 0;
  REQUIRE(step.graph[ids].op == Op::input);
  const Generated advance = generate_advance(step, ids, program.max_context + 1);
  lab.build(advance.sources);
  const std::vector<double> times = time_cuts(step, program, made, {advance, "advance"},
                                              {.contexts = {0}, .tokens = kTokens}, lab, quiet);
  REQUIRE(times.size() == cuts.size());
  CHECK(times.back() > 4 * times[0]);

  const std::size_t parts = cuts.back().parts.size();
  selector.take(std::move(cuts.back()), quiet);
  CHECK(selector.alternatives().parts.size() == parts);
}

TEST_CASE("selection: what is pinned is taken, each variant with its own cut") {
  Fixture f;
  const CompiledPhase phase = f.planned();
  Lab lab(f.builder, f.unmeasured());
  // The first cut is the whole in one kernel, the other one is in as many as there can be.
  const auto of_option = [&](const FusionOption& option, std::size_t rank) {
    std::map<std::string, std::string> candidates;
    for (const Part& part : option.parts) {
      const Space& space = phase.plans.spaces[static_cast<std::size_t>(part.space)];
      candidates[space.signature] = rank < space.candidates.size() ? space.candidates[rank].id : "";
    }
    return candidates;
  };
  const std::vector<FusionOption>& head = phase.plans.neighbourhoods.at(0).options;
  REQUIRE(head.front().parts.size() == 1);
  REQUIRE(head.back().parts.size() == 3);
  Pinned pinned;
  pinned.variants = {{.from = 0, .candidates = of_option(head.front(), 1)},
                     {.from = 70, .candidates = of_option(head.back(), 0)}};
  pinned.variants[1].candidates.begin()->second = "";  // to the fallback
  pinned.contexts = {{.context = 80, .first_us = 2, .us = 1, .from = 70}};
  const auto [record, variants] =
      choose_pinned(phase, {}, {.max_context = 64}, pinned, lab, f.quiet);
  REQUIRE(variants.size() == 2);
  CHECK(variants[0].parts.size() == 1);
  CHECK(variants[1].parts.size() == 3);
  CHECK(variants[1].from == 70);
  REQUIRE(record.selections.size() == 4);
  REQUIRE(record.in_context.size() == 1);
  CHECK(record.in_context[0].context == 80);
  int fallbacks = 0;
  for (const Selection& selection : record.selections) {
    CHECK(!selection.trials.empty());
    REQUIRE(selection.by_context.size() == 1);
    const auto [from, candidate] = selection.by_context[0];
    const auto& wanted = pinned.variants[from == 0 ? 0 : 1].candidates;
    CHECK(wanted.at(selection.signature) == candidate);
    CHECK(selection.candidate == candidate);
    fallbacks += candidate.empty();
    for (const Attempt& attempt : selection.attempts) CHECK(attempt.outcome.admitted());
  }
  CHECK(fallbacks == 1);

  const auto fails = [&](const Pinned& with) {
    Lab again(f.builder, f.unmeasured());
    CHECK_THROWS_AS(choose_pinned(phase, {}, {.max_context = 64}, with, again, f.quiet), Error);
  };
  Pinned bad = pinned;
  bad.variants[0].candidates.begin()->second = "gemv/none";
  fails(bad);
  bad = pinned;
  bad.variants[0].candidates = {{"another region", ""}};
  fails(bad);
  f.reject_all();
  fails(pinned);
}

namespace {

// Norms of many rows, which a warp each computes in less time than the fallback does.
struct LateFixture : FreshBuilder {
  static constexpr std::int64_t kTokens = 64;
  Progress quiet{true};
  CompiledPhase phase;
  const std::vector<StateSpec> states;
  LabOptions here = unmeasured();

  // One after the other, with weights of their own.
  explicit LateFixture(int norms = 1) {
    StepGraph step;
    step.graph.name = "norm";
    Builder b(step.graph);
    NodeId x = b.input("x", {DType::f32, {Dim(Symbol::T), Dim(512)}});
    for (int i = 0; i < norms; ++i)
      x = b.rms_norm(x, b.weight(fmt::format("norm{}", i), {DType::f32, {Dim(512)}}), 1e-5, 0);
    step.graph.outputs = {{"y", x}};
    phase.spec.max_tokens = kTokens;
    phase.regions = analyse(step);
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = kTokens, .P = 0}});
    here.here = true;
  }

  Selector selector(Lab& lab) {
    return {phase,
            states,
            {.tries = 3, .leaders = 3, .judges_late = true, .raced = 2, .max_context = kTokens},
            lab};
  }
  static const Selection& norm_of(const std::vector<Selection>& selections) {
    return *std::ranges::find(selections, "rms_norm", [](const Selection& selection) {
      return selection.ops.empty() ? "" : selection.ops[0];
    });
  }
};

}  // namespace

TEST_CASE("selection: what is judged late is timed unjudged, and judged once it is chosen") {
  LateFixture f;
  Lab lab(f.builder, f.here);
  Selector selector = f.selector(lab);
  selector.run(f.quiet);
  const auto chosen = [&] { return first_choice(selector.alternatives()); };
  REQUIRE(selector.alternatives().parts[0].options[0].note.find("norm/") == 0);
  CHECK(selector.confirm({chosen()}, f.quiet));
  const std::vector<Selection> selections = selector.selections({chosen()});
  const Selection& norm = LateFixture::norm_of(selections);
  CHECK(norm.measured);
  CHECK(lab.has_admitted(norm.trials.at(0)));
  int admitted = 0, unjudged = 0;
  for (const Attempt& attempt : norm.attempts) {
    CHECK((attempt.candidate == norm.candidate) == attempt.outcome.admitted());
    CHECK(attempt.measured);  // by the race, or by the look before it
    admitted += attempt.outcome.admitted();
    unjudged += attempt.outcome.kind == Outcome::Kind::unjudged;
  }
  CHECK(admitted == 1);
  CHECK(unjudged == static_cast<int>(norm.attempts.size()) - 1);
  // Asked about all that is left: right as well.
  CHECK(!selector.judge_left(f.quiet));
  const std::vector<Selection> all = selector.selections({chosen()});
  for (const Attempt& attempt : LateFixture::norm_of(all).attempts)
    CHECK(attempt.outcome.admitted());
}

TEST_CASE(
    "selection: what is judged late is judged as it was put off, whichever part comes first") {
  LateFixture f(2);
  Lab lab(f.builder, f.here);
  Selector selector = f.selector(lab);
  selector.run(f.quiet);
  NearCut cut = selector.near_cuts().at(0);
  std::ranges::reverse(cut.parts);
  selector.take(std::move(cut), f.quiet);
  const auto chosen = first_choice(selector.alternatives());
  REQUIRE(selector.confirm({chosen}, f.quiet));
  const std::vector<Selection> selections = selector.selections({chosen});
  CHECK(LateFixture::norm_of(selections).uses == 2);
  CHECK(lab.has_admitted(LateFixture::norm_of(selections).trials.at(0)));
}

TEST_CASE(
    "selection: what is refused late loses its place to the next best, down to the fallback") {
  LateFixture f;
  const Space& space = *std::ranges::find_if(
      f.phase.plans.spaces, [](const Space& of) { return !of.candidates.empty(); });
  {
    Lab lab(f.builder, f.here);
    std::vector<Request> requests;
    const TrialSetting at{LateFixture::kTokens,
                          {f.phase.plans.device.multiprocessors, {}},
                          false,
                          LateFixture::kTokens};
    for (const Candidate& candidate : space.candidates)
      requests.push_back(*trial_of(f.phase.regions.step, Wanted{f.phase.regions.regions[0], false},
                                   candidate, at));
    for (const Outcome& outcome : lab.judge(requests)) CHECK(outcome.admitted());
  }
  for (const auto& entry : std::filesystem::directory_iterator(f.folder.path() / "verdicts"))
    write_file(entry.path(),
               record_text(entry.path().stem(),
                           {{"verdict", {{"kind", "rejected"}, {"why", "planted"}}}}));
  Lab lab(f.builder, f.here);
  Selector selector = f.selector(lab);
  selector.run(f.quiet);
  REQUIRE(selector.alternatives().parts[0].options[0].note.find("norm/") == 0);
  int rounds = 0;
  while (!selector.confirm({first_choice(selector.alternatives())}, f.quiet)) ++rounds;
  CHECK(rounds >= 1);
  const std::vector<Selection> selections =
      selector.selections({first_choice(selector.alternatives())});
  const Selection& norm = LateFixture::norm_of(selections);
  CHECK(norm.candidate.empty());  // the fallback
  for (const Attempt& attempt : norm.attempts) CHECK(attempt.outcome.why == "planted");
}

TEST_CASE("selection: a schedule is read from a plan, with what runs at each context") {
  const Json plan = Json::parse(R"({"phases": [{"name": "prefill"}, {"name": "decode",
    "cuts": [{"other": "", "us": 5, "taken": false}, {"other": "a | b", "us": 4, "taken": true}],
    "in_context": [{"from": 50, "context": 60, "first_us": 3, "us": 2, "timed": 4, "changed": true},
                   {"context": 90, "untimed": "no time"}],
    "selections": [{"signature": "a", "candidate": "p"},
                   {"signature": "b", "candidate": "q",
                    "by_context": [{"from": 0, "candidate": "q"}, {"from": 50, "candidate": ""}]},
                   {"signature": "c", "candidate": "r",
                    "by_context": [{"from": 50, "candidate": "r"}]}]}]})");
  const Pinned pinned = pinned_as(plan, "decode", "plan");
  using Candidates = std::map<std::string, std::string>;
  REQUIRE(pinned.variants.size() == 2);
  CHECK(pinned.variants[0].candidates == Candidates{{"a", "p"}, {"b", "q"}});
  CHECK(pinned.variants[1].candidates == Candidates{{"a", "p"}, {"b", ""}, {"c", "r"}});
  CHECK(pinned.variants[1].from == 50);
  REQUIRE(pinned.contexts.size() == 2);
  CHECK(pinned.contexts[0].us == 2);
  REQUIRE(pinned.cuts.size() == 2);
  CHECK(pinned.cuts[1].what == "a | b");
  CHECK(pinned.cuts[1].taken);
  CHECK(pinned.contexts[0].changed);
  CHECK(pinned.contexts[1].untimed == "no time");
  CHECK_THROWS_AS(pinned_as(plan, "prefill", "plan"), Error);
}
