// Jobs that a compilation gives to processes of their own: here on the host device.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "admit/judge.h"
#include "admit/trials.h"
#include "expect_error.h"
#include "families/list.h"
#include "ir/builder.h"
#include "lab/lab.h"
#include "lab/worker.h"
#include "plan/planner.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

struct WorkerFixture : FreshBuilder {
  StepGraph step = norm_and_product(DType::f16, 64);
  Regions regions = analyse(step);
  Wanted wanted{std::get<Region>(make_region(step, nodes()))};
  Space space = plan_space(step, wanted, {.S = -1, .T = 1, .P = 0}, device_info("host"), 4);
  Request request = trial_of(step, wanted, space.candidates.at(0), {1, {1, {}}}).value();

  std::vector<NodeId> nodes() const {
    std::vector<NodeId> found;
    for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
      if (is_compute(step.graph.nodes[i])) found.push_back(static_cast<NodeId>(i));
    return found;
  }
  KernelFiles built() { return built(builder); }
  KernelFiles built(KernelBuilder& with) const {
    KernelFiles files;
    for (const KernelSource& source : request.sources)
      files[source.entry] = std::get<Artifact>(with.build(source, {})).file;
    return files;
  }
};

Json judged_on_host(const Trial& trial, const KernelFiles& files) {
  const Conversation::Answer answer = prepare(open_host_device(), ServeJob{});
  return Json::parse(answer(line_of(JudgeQuestion{trial, files})));
}

}  // namespace

TEST_CASE("a trial is the same after it was written and read") {
  const WorkerFixture f;
  const Json json = to_json(f.request.trial);
  CHECK(to_json(trial_from_json(Json::parse(json.dump()), "test")) == json);
}

TEST_CASE("a worker admits a right kernel and rejects one with a wrong parameter") {
  WorkerFixture f;
  const KernelFiles files = f.built();
  CHECK(judged_on_host(f.request.trial, files).at("kind") == "admitted");
  Trial wrong = f.request.trial;
  // The numbers of the parameters: among them the norm's epsilon and the length of the row.
  for (std::byte& byte : wrong.launches.at(0).params)
    if (byte == std::byte{64}) byte = std::byte{63};
  CHECK(judged_on_host(wrong, files).at("kind") == "rejected");
}

TEST_CASE("a device's copies of buffers show what is written behind them") {
  WorkerFixture f;
  const KernelFiles files = f.built();
  const auto device = open_host_device();
  for (const std::size_t guard : {std::size_t{0}, kGuardBytes})
    CHECK(judge_on(*device, f.request.trial, files, guard).admitted());
  Trial wrong = f.request.trial;
  // The first number of the parameters is how many rows there are: eight more are written.
  std::vector<std::byte>& params = wrong.launches.at(0).params;
  *std::ranges::find(params, std::byte{64}) = std::byte{72};
  const validate::Verdict verdict = judge_on(*device, wrong, files);
  REQUIRE(verdict.rejection);
  CHECK(verdict.rejection->reason.find("wrote outside of the buffer") != std::string::npos);
}

TEST_CASE("a worker without a GPU judges as the lab itself does, races too") {
  WorkerFixture f;
  Trial races = f.request.trial;
  races.purpose = Purpose::races;
  for (const Trial& trial : {f.request.trial, races}) {
    BuilderOptions options = f.builder.options();
    if (trial.purpose == Purpose::races) options.checks = HostChecks::races;
    KernelBuilder builder(options);
    const KernelFiles files = f.built(builder);
    const Json own = to_json(outcome_of(judge(trial, files)));
    CHECK(own.at("kind") == "admitted");
    CHECK(judged_on_host(trial, files) == own);
  }
}

TEST_CASE("a worker does one job after the other on one device") {
  WorkerFixture f;
  const KernelFiles files = f.built();
  const Conversation::Answer answer =
      prepare(assignment_of(line_of(Assignment{false, ServeJob{}})));
  const Generated made = generate_for(f.step, f.wanted, f.space.candidates[0].choice,
                                      {.S = -1, .T = 1, .P = 0}, {1, {}});
  MeasureOptions options;
  options.rounds = 2, options.repetitions = 3;
  for (int i = 0; i < 2; ++i) {
    const std::string judged = answer(line_of(JudgeQuestion{f.request.trial, files}));
    CHECK(Json::parse(judged).at("kind") == "admitted");
    const std::string raced = answer(line_of(RaceQuestion{f.step, {{"a", made}}, files, options}));
    CHECK(samples_of(raced).at(0).size() == 2);
  }
  CHECK_THROWS(answer("{}"));
}

TEST_CASE("a worker times contenders in turn") {
  WorkerFixture f;
  const Generated made = generate_for(f.step, f.wanted, f.space.candidates[0].choice,
                                      {.S = -1, .T = 1, .P = 0}, {1, {}});
  MeasureOptions options;
  options.rounds = 2;
  const Samples samples =
      race(*open_host_device(), {f.step, {{"a", made}, {"b", made}}, f.built(), options});
  REQUIRE(samples.size() == 2);
  REQUIRE(samples[0].size() == 2);
  CHECK(samples[0][0] > 0);
  // The same kernel twice: what differs is the machine's noise.
  CHECK(samples[0][0] < 10 * samples[1][0]);
}

TEST_CASE("a worker admits a library's product, and none that is told wrongly what to compute") {
  StepGraph step;
  step.graph.name = "product";
  Builder b(step.graph);
  const Dim T(Symbol::T);
  const NodeId x = b.input("x", {DType::f16, {T, Dim(48)}});
  const NodeId old = b.input("old", {DType::f16, {T, Dim(40)}});
  const NodeId w = b.weight("w", {DType::f16, {Dim(40), Dim(48)}});
  step.graph.outputs = {{"y", b.binary(Op::add, old, b.linear(x, w))}};
  const Wanted wanted{analyse(step).regions.at(0)};
  const Space space = plan_space(step, wanted, {.S = -1, .T = 24, .P = 0}, device_info("host"), 4,
                                 {std::string(LibraryTask::family)});
  REQUIRE(!space.candidates.empty());
  for (const bool itself : {false, true}) {
    const auto request = trial_of(step, wanted, space.candidates[0], {24, {1, {}}, itself});
    REQUIRE(request);
    const Trial& trial = request->trial;
    CHECK(calls_library(trial));
    // A library that is judged itself is by as many tokens as make it take the algorithm.
    CHECK(trial.tokens == (itself ? 18 : 24));
    CHECK(2 * trial.tokens > trial.launches.at(0).product->tuned_m);
    CHECK(judged_on_host(trial, {}).at("kind") == "admitted");
    const auto is_rejected = [&](const std::function<void(Product&)>& harm) {
      Trial wrong = trial;
      harm(*wrong.launches.at(0).product);
      wrong.launches[0].kernel = name_of(*wrong.launches[0].product);
      return judged_on_host(wrong, {}).at("kind") == "rejected";
    };
    CHECK(is_rejected([](Product& p) { p.k -= 1; }));
    CHECK(is_rejected([](Product& p) { p.n -= 1; }));
    CHECK(is_rejected([](Product& p) { p.scale = 1.01; }));
  }
  const Json json = to_json(trial_of(step, wanted, space.candidates[0], {24, {1, {}}})->trial);
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"n", 0}, {"k", 1 << 25}, {"x_pitch", 47}, {"algorithm", -1}, {"tuned_m", 0}}) {
    Json harmed = json;
    harmed["launches"][0]["product"][key] = value;
    CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial");
  }
  for (const std::int64_t rows : {0, 1 << 25}) {
    Json harmed = json;
    harmed["launches"][0]["numbers"][0][2] = rows;
    CHECK_BAD_INPUT(trial_from_json(harmed, "trial"), "trial", "rows");
  }
  const Generated made =
      generate_for(step, wanted, space.candidates[0].choice, {.S = -1, .T = 24, .P = 0}, {1, {}});
  MeasureOptions options;
  options.tokens = 24, options.rounds = 2;
  const Samples samples = race(*open_host_device(), {step, {{"library", made}}, {}, options});
  CHECK(samples.at(0).size() == 2);
  CHECK(samples.at(0).at(0) > 0);
}
