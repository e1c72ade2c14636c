// The final admission: what was chosen is judged again where it is used, and replaced where that
// goes wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "build/cache_record.h"
#include "select/choose_phase.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kRows = 3000, kContext = 64;

struct Fixture : FreshBuilder {
  Progress quiet{true};
  CompiledPhase phase;
  const std::vector<StateSpec> states;
  Lab lab{builder, unmeasured()};
  std::string refused;

  explicit Fixture(std::int64_t rows = kRows) {
    phase.regions = analyse(norm_and_product(DType::f32, rows));
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = 1, .P = 0}, .fuse = false});
  }

  Selector selector(std::size_t tries) {
    return {phase, states, {.tries = tries, .max_context = kContext}, lab};
  }

  const Region& product() const {
    return *std::ranges::find_if(
        phase.regions.regions, [](const Region& region) { return region.dominant == Op::linear; });
  }
  const Space& product_space() const {
    return *std::ranges::find(phase.plans.spaces, product().signature, &Space::signature);
  }
  TrialSetting setting() const {
    return {.setting = {phase.plans.device.multiprocessors, {}}, .max_context = kContext};
  }
  Request quick(const Candidate& candidate) const {
    return trial_of(phase.regions.step, Wanted{product(), false}, candidate, setting()).value();
  }
  std::vector<Request> confirmation(const Candidate& candidate) const {
    return confirmation_of(phase.regions.step, Wanted{product(), false}, candidate, setting())
        .value();
  }

  // As if its final admission had gone wrong in an earlier run.
  void refuse_product(const std::string& id) {
    refused = id.substr(0, id.find(" at "));
    const std::set<fs::path> before = verdicts();
    const Space& space = product_space();
    Lab other(builder, unmeasured());
    other.judge(
        {confirmation(*std::ranges::find(space.candidates, refused, &Candidate::id)).at(0)});
    for (const fs::path& file : verdicts())
      if (!before.contains(file))
        write_file(file, record_text(file.stem(),
                                     {{"verdict", {{"kind", "rejected"}, {"why", "planted"}}}}));
  }

 private:
  std::set<fs::path> verdicts() const {
    std::set<fs::path> files;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(folder.path() / "verdicts", none_yet))
      files.insert(entry.path());
    return files;
  }
};

const Selection& product_of(const CompiledPhase& phase) {
  for (const Selection& selection : phase.selections)
    if (selection.ops == std::vector<std::string>{"linear"}) return selection;
  FAIL("no product");
  return phase.selections.at(0);
}

}  // namespace

TEST_CASE("final admission: a winner that is refused is replaced, and what replaces it is judged") {
  for (const std::size_t tries : {2u, 1u}) {
    CAPTURE(tries);
    Fixture f;
    {
      Selector selector = f.selector(tries);
      selector.run(f.quiet);
      const ContextChoice choice = first_choice(selector.alternatives());
      f.refuse_product(selector.alternatives().parts.at(1).options.at(0).note);
      CHECK(!selector.confirm({choice}, f.quiet));
      const ContextChoice next = first_choice(selector.alternatives());
      CHECK(selector.confirm({next}, f.quiet));
      f.phase.selections = selector.selections({next});
    }
    const Selection& product = product_of(f.phase);
    CHECK(product.candidate != f.refused);
    CHECK(product.candidate.empty() == (tries == 1));
    REQUIRE(product.confirmed.size() == 2);
    CHECK(product.confirmed[0].purpose == Purpose::as_used);
    CHECK(product.confirmed[1].purpose == Purpose::races);
    // All were judged now. The fallback's threads share no memory, and so cannot race on the host.
    for (const Confirmed& of : product.confirmed) {
      CHECK(of.outcome.admitted());
      CHECK(!of.outcome.from_cache);
      const bool may_race = of.purpose != Purpose::races || tries == 2;
      CHECK((of.outcome.launches > 0) == may_race);
    }
    const auto attempt = std::ranges::find(product.attempts, f.refused, &Attempt::candidate);
    REQUIRE(attempt != product.attempts.end());
    CHECK(attempt->outcome.kind == Outcome::Kind::rejected);
    CHECK(attempt->outcome.why == "final admission, as used: planted");
  }
}

TEST_CASE(
    "final admission: what an earlier run found out is known, and no quick trial stands for it") {
  Fixture f;
  const Candidate& candidate = f.product_space().candidates.at(0);
  std::vector<Request> all = f.confirmation(candidate);
  all.insert(all.begin(), f.quick(candidate));
  const auto from_cache = [&](const std::vector<Request>& requests) {
    Lab lab(f.builder, f.unmeasured());
    std::vector<bool> known;
    for (const Outcome& outcome : lab.judge(requests)) {
      CHECK(outcome.admitted());
      known.push_back(outcome.from_cache);
    }
    return known;
  };
  // As if the first run had been killed before the final admission.
  CHECK(from_cache({all[0]}) == std::vector<bool>{false});
  CHECK(from_cache(all) == std::vector<bool>{true, false, false});
  CHECK(from_cache(all) == std::vector<bool>{true, true, true});
}

TEST_CASE("final admission: a GPU without a compiler for the host device has no look for races") {
  Fixture f;
  const Target gpu{Target::cuda, "sm_90a"};
  try {
    f.builder.compiler(gpu);
  } catch (const Error&) {
    MESSAGE("skipped, as no compiler for GPUs is here");
    return;
  }
  BuilderOptions options = f.builder.options();
  options.host_compiler = "/no/compiler";
  KernelBuilder builder(options);
  const Request races = f.confirmation(f.product_space().candidates.at(0)).at(1);
  LabOptions on_gpu = f.unmeasured();
  on_gpu.target = gpu, on_gpu.here = true;
  const Outcome outcome = Lab(builder, on_gpu).judge({races}).at(0);
  CHECK(outcome.admitted());
  CHECK(outcome.launches == 0);
  CHECK(outcome.note.find("races are not looked for") != std::string::npos);
  // Where kernels are judged on the host device there is no way around one.
  on_gpu.here = false;
  CHECK_THROWS_AS(Lab(builder, on_gpu).judge({races}), Error);
}

TEST_CASE("final admission: a pinned choice that is refused is an error") {
  Fixture f;
  const Space& space = f.product_space();
  f.refuse_product(space.candidates.at(0).id);
  Pinned pinned;
  Pinned::Variant variant;
  for (const Space& other : f.phase.plans.spaces) variant.candidates[other.signature] = "";
  variant.candidates[space.signature] = f.refused;
  pinned.variants = {variant};
  CHECK_THROWS_WITH_AS(
      choose_pinned(f.phase, f.states, {.max_context = kContext}, pinned, f.lab, f.quiet),
      doctest::Contains("final admission, as used: planted"), Error);
}

TEST_CASE("final admission: rows of large weights repeat some, and all results are judged") {
  constexpr std::int32_t kLarge = 200'001, kLess = kLarge - 1;
  Fixture f(kLarge);
  Request request = f.confirmation(f.product_space().candidates.at(0)).at(0);
  CHECK(request.left_open.empty());
  CHECK(request.trial.distinct_rows == 509);
  CHECK(request.trial.step.find("[200001, 64]") != std::string::npos);
  CHECK(to_json(trial_from_json(to_json(request.trial), "test")) == to_json(request.trial));
  CHECK(f.lab.judge({request}).at(0).admitted());
  // As if there were a row less.
  std::vector<std::byte>& params = request.trial.launches.back().params;
  const auto rows = std::ranges::search(params, std::as_bytes(std::span(&kLarge, 1)));
  REQUIRE(!rows.empty());
  std::memcpy(&rows.front(), &kLess, sizeof kLess);
  const Outcome outcome = f.lab.judge({request}).at(0);
  CHECK(outcome.kind == Outcome::Kind::rejected);
  CHECK(outcome.why.find("[200000] was left as it was") != std::string::npos);
}

TEST_CASE("final admission: a table of more than 2^31 elements") {
  constexpr std::int64_t kEntries = 1'100'000, kWidth = 2048;
  static_assert(kEntries * kWidth > std::int64_t{1} << 31);
  StepGraph step;
  step.graph.name = "table";
  Builder b(step.graph);
  const NodeId ids = b.input("ids", {DType::i64, {Dim(Symbol::T)}});
  const NodeId table = b.weight("table", {DType::bf16, {Dim(kEntries), Dim(kWidth)}});
  step.graph.outputs = {{"y", b.embedding(table, ids)}};
  const Wanted wanted{analyse(step).regions.at(0)};
  const Space space = plan_space(step, wanted, {.S = -1, .T = 1, .P = 0}, device_info("host"), 1);
  FreshBuilder fresh;
  Lab lab(fresh.builder, fresh.unmeasured());
  const std::vector<Request> requests =
      confirmation_of(step, wanted, space.candidates.at(0),
                      {.max_tokens = 7, .setting = {1, {}}, .max_context = 64})
          .value();
  CHECK(requests.at(0).left_open.empty());
  CHECK(requests[0].trial.limits.at("ids") == kEntries);
  CHECK(lab.judge({requests[0]}).at(0).admitted());
}

TEST_CASE("final admission: extents are the package's, and what is cut is said") {
  Fixture f;
  const auto requests = f.confirmation(f.product_space().candidates.at(0));
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].trial.purpose == Purpose::as_used);
  CHECK(requests[0].left_open.empty());
  CHECK(requests[0].trial.step.find("[3000, 64]") != std::string::npos);
  CHECK(requests[1].trial.purpose == Purpose::races);
  CHECK(requests[1].trial.step.find("[3000, 64]") == std::string::npos);

  // More than the host device can do in a moment.
  Fixture large(1'000'000);
  const auto cut = large.confirmation(large.product_space().candidates.at(0));
  CHECK(cut.at(0).left_open.find("of 1000000 rows of weights") != std::string::npos);
  const std::vector<Outcome> outcomes = large.lab.judge({cut.at(0)});
  CHECK(outcomes.at(0).admitted());
  CHECK(outcomes.at(0).note == cut.at(0).left_open);
}

TEST_CASE("final admission: what the race checker would need long for is left out, and said") {
  for (const std::int64_t k : {128, 2048}) {
    CAPTURE(k);
    StepGraph step;
    Builder b(step.graph);
    const NodeId x = b.input("x", {DType::bf16, {Dim(Symbol::T), Dim(k)}});
    const NodeId w = b.weight("w", {DType::bf16, {Dim(4096), Dim(k)}});
    step.graph.outputs = {{"y", b.linear(x, w)}};
    const Regions regions = analyse(step);
    const Plans plans = plan(regions, device_info("sm_90"),
                             {.families = {"mma_gemm"}, .at = {.S = -1, .T = 256, .P = 0}});
    REQUIRE(!plans.spaces.at(0).candidates.empty());
    const Candidate& candidate = plans.spaces[0].candidates[0];
    const auto all =
        confirmation_of(step, Wanted{regions.regions.at(0), false}, candidate,
                        {.max_tokens = 256, .setting = {132, {}}, .max_context = 4096});
    REQUIRE(all);
    const bool is_said = all->at(0).left_open.find("races are not looked for") != std::string::npos;
    CHECK(is_said == (k > 128));
    REQUIRE(all->size() == (k > 128 ? 1 : 2));
    if (k == 128) CHECK(all->at(1).trial.purpose == Purpose::races);
  }
}
