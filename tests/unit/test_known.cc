// Known choices: files of them, whether they hold here, and which phases they know whole.
#include "select/known.h"

#include <doctest/doctest.h>

#include "base/files.h"
#include "compile/phases.h"
#include "expect_error.h"
#include "select/choose_phase.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

constexpr const char* kDevice = "NVIDIA H100 (sm_90, 132 SMs, 50 MiB L2)";
constexpr const char* kToolkit = "NVRTC 13.0";

// A token through an embedding, a norm and a product.
StepGraph small_decoder() {
  StepGraph step;
  step.graph.name = "small";
  Builder b(step.graph);
  const NodeId ids = b.input("ids", {DType::i64, {Dim(1)}});
  const NodeId table = b.weight("table", {DType::f32, {Dim(30), Dim(64)}});
  const NodeId scale = b.weight("norm", {DType::f32, {Dim(64)}});
  const NodeId w = b.weight("w", {DType::f32, {Dim(70), Dim(64)}});
  step.graph.outputs = {{"y", b.linear(b.rms_norm(b.embedding(table, ids), scale, 1e-5, 0), w)}};
  return step;
}

struct Fixture : FreshBuilder {
  Progress quiet{true};
  PhasePlan phase;

  Fixture() {
    phase.spec = {"decode", 1, 1, 1, {288, 864}};
    phase.regions = analyse(small_decoder());
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = 1, .P = 0}});
  }

  // The last candidate of each region of the cut in which all regions have spaces.
  KnownChoices known() const {
    KnownChoices known{.origin = "a.json",
                       .model = "small",
                       .device = kDevice,
                       .toolkit = kToolkit,
                       .headers = {},
                       .phases = {}};
    Pinned::Variant variant;
    for (const Space& space : phase.plans.spaces)
      variant.candidates[space.signature] =
          space.candidates.empty() ? "" : space.candidates.back().id;
    for (const std::string& signature : pinned_signatures(phase, variant))
      variant.candidates.emplace(signature, "");
    Pinned::Variant later = variant;
    later.from = 500;
    Pinned::Variant last = variant;
    last.from = 1500;
    Pinned choice{{variant, later, last}, {}, {}};
    for (const std::int64_t context : {288, 864, 2592})
      choice.contexts.push_back({.context = context, .first_us = 3, .us = 2, .timed = 4});
    known.phases.push_back({"decode", 1, {288, 864, 2592}, std::move(choice)});
    return known;
  }

  PhaseChoice choose(const KnownPhase& known) {
    Lab lab(builder, unmeasured());
    Program program;
    program.max_context = 4096;
    program.target = "host";
    ChooseOptions options{
        .select = {.tries = 1, .max_context = 64}, .in_context = {}, .known = &known};
    options.select.preferred = known.order;
    return PhaseChooser(phase, program, options, lab).choose(quiet);
  }
};

}  // namespace

TEST_CASE("known choices: what is written is what is read") {
  const Fixture f;
  const KnownChoices known = f.known();
  const KnownChoices read = known_choices_from_json(to_json(known), "b.json");
  CHECK(to_json(read) == to_json(known));
  CHECK(read.origin == "b.json");
  CHECK(read.stale.empty());
}

TEST_CASE("known choices: a damaged file is an error that names it") {
  const Fixture f;
  const Json whole = to_json(f.known());
  CHECK_BAD_INPUT(known_choices_from_json(Json::array(), "x.json"), "x.json", "--no-tuned");
  for (const char* field : {"device", "toolkit", "headers", "phases", "model"}) {
    Json damaged = whole;
    damaged.erase(field);
    CHECK_BAD_INPUT(known_choices_from_json(damaged, "x.json"), "x.json", field);
    damaged[field] = 3;
    CHECK_BAD_INPUT(known_choices_from_json(damaged, "x.json"), "x.json");
  }
  Json damaged = whole;
  damaged["format"] = 99;
  CHECK_BAD_INPUT(known_choices_from_json(damaged, "x.json"), "x.json", "another format");
  damaged = whole;
  damaged["phases"][0]["variants"][1]["from"] = 0;
  CHECK_BAD_INPUT(known_choices_from_json(damaged, "x.json"), "x.json", "do not rise");
  damaged = whole;
  damaged["phases"][0]["variants"] = Json::array();
  CHECK_BAD_INPUT(known_choices_from_json(damaged, "x.json"), "x.json", "do not rise");
  write_file(f.folder.path() / "x.json", "{\"format\": 1,");
  CHECK_BAD_INPUT(read_known_choices(f.folder.path()), "x.json");
}

TEST_CASE("known choices: another toolkit or kernel makes them stale, another device none") {
  const Fixture f;
  const auto folder = f.folder.path() / "tuned", headers = f.folder.path() / "sources";
  std::filesystem::create_directories(folder);
  std::filesystem::create_directories(headers / "kernels/shim");
  write_file(headers / "kernels/a.cuh", "#include \"kernels/b.cuh\"\n");
  write_file(headers / "kernels/b.cuh", "#include \"kernels/shim/device.h\"\nint b;\n");
  write_file(headers / "kernels/shim/device.h", "int host;\n");
  KnownChoices known = f.known();
  known.headers = header_digests({{"a", "#include \"kernels/a.cuh\"\n"}}, headers);
  REQUIRE(known.headers.size() == 2);  // what only the CPU needs is left out
  write_file(folder / "a.json", to_json(known).dump());
  known.toolkit = "NVRTC 12.8";
  write_file(folder / "0.json", to_json(known).dump());
  const auto read = [&](const char* device = kDevice) {
    return known_choices_of(folder, device, kToolkit, headers);
  };
  CHECK(read("NVIDIA H200 (sm_90, 132 SMs, 60 MiB L2)").empty());
  REQUIRE(read().size() == 2);
  CHECK(read()[0].stale.empty());  // those that hold come first
  CHECK(read()[0].origin.ends_with("a.json"));
  CHECK(read()[1].stale == "timed with NVRTC 12.8, not NVRTC 13.0");
  write_file(headers / "kernels/b.cuh", "int c;\n");
  for (const KnownChoices& of : read()) CHECK(of.stale == "kernels/b.cuh is another one since");
  CHECK(known_choices_of(f.folder.path() / "none", kDevice, kToolkit, headers).empty());
}

TEST_CASE("known choices: a phase is known whole if all of its regions are") {
  Fixture f;
  KnownChoices known = f.known();
  const KnownPhase whole = known_of(f.phase, {known});
  REQUIRE(whole.whole);
  CHECK(whole.origin == "a.json");
  // Of as many contexts as the phase has.
  REQUIRE(whole.whole->variants.size() == 2);
  CHECK(whole.whole->variants[1].from == 500);
  CHECK(whole.whole->contexts.size() == 2);
  for (const auto& [signature, candidates] : whole.order) CHECK(candidates.size() <= 1);

  SUBCASE("but not for steps of other sizes or contexts") {
    f.phase.spec.contexts = {288, 500};
    CHECK(!known_of(f.phase, {known}).whole);
    f.phase.spec.contexts = {288, 864, 2592, 7776};
    CHECK(!known_of(f.phase, {known}).whole);
    f.phase.spec.contexts = {};
    REQUIRE(known_of(f.phase, {known}).whole);
    CHECK(known_of(f.phase, {known}).whole->variants.size() == 1);
    f.phase.spec.tuned_at = 2;
    CHECK(!known_of(f.phase, {known}).whole);
  }
  SUBCASE("but not for steps that several sequences shall share, unless it was made so") {
    f.phase.spec.shared = true;
    CHECK(!known_of(f.phase, {known}).whole);
    CHECK(known_of(f.phase, {known}).order == whole.order);
    known.phases[0].shared = true;
    CHECK(known_of(f.phase, {known}).whole);
    const KnownChoices read = known_choices_from_json(to_json(known), "b.json");
    CHECK(known_of(f.phase, {read}).whole);
    f.phase.spec.shared = false;
    CHECK(!known_of(f.phase, {read}).whole);
  }
  SUBCASE("and a stale one gives an order") {
    known.stale = "old";
    const KnownPhase order = known_of(f.phase, {known});
    CHECK(!order.whole);
    CHECK(order.order == whole.order);
  }
  SUBCASE("and one that lacks a region gives an order of the others") {
    const std::string lost = pinned_signatures(f.phase, known.phases[0].choice.variants[0]).at(0);
    for (Pinned::Variant& variant : known.phases[0].choice.variants) variant.candidates.erase(lost);
    const KnownPhase order = known_of(f.phase, {known});
    // Another cut may do without it.
    if (order.whole)
      for (const Pinned::Variant& variant : order.whole->variants)
        for (const std::string& signature : pinned_signatures(f.phase, variant))
          CHECK(signature != lost);
    CHECK(!order.order.contains(lost));
    for (Pinned::Variant& variant : known.phases[0].choice.variants) variant.candidates.clear();
    CHECK(!known_of(f.phase, {known}).whole);
  }
}

TEST_CASE("known choices: what is known is built and admitted, and taken") {
  Fixture f;
  const KnownPhase known = known_of(f.phase, {f.known()});
  REQUIRE(known.whole);
  const PhaseChoice chosen = f.choose(known);
  CHECK(chosen.record.known == "a.json");
  CHECK(chosen.variants.size() == 2);
  for (const Selection& selection : chosen.record.selections) {
    CHECK(selection.candidate == known.whole->variants[0].candidates.at(selection.signature));
    CHECK(!selection.trials.empty());
    CHECK(!selection.confirmed.empty());
  }
}

TEST_CASE("known choices: one that this program does not know is no error: it is selected anew") {
  Fixture f;
  KnownPhase known = known_of(f.phase, {f.known()});
  REQUIRE(known.whole);
  for (Pinned::Variant& variant : known.whole->variants)
    for (auto& [signature, candidate] : variant.candidates)
      if (!candidate.empty()) candidate = "gemv/of another time";
  const PhaseChoice chosen = f.choose(known);
  CHECK(chosen.record.known.empty());
  CHECK(!chosen.record.selections.empty());
}

TEST_CASE("known choices: what is tried first is the known candidate") {
  Fixture f;
  KnownPhase known = known_of(f.phase, {f.known()});
  known.whole.reset();
  const PhaseChoice chosen = f.choose(known);
  bool ordered = false;
  for (const Selection& selection : chosen.record.selections) {
    const auto first = known.order.find(selection.signature);
    if (first == known.order.end() || first->second.empty() || selection.attempts.empty()) continue;
    CHECK(selection.attempts[0].candidate == first->second[0]);
    ordered = true;
  }
  CHECK(ordered);
}

TEST_CASE("quick phases: as few as run every step, with one choice for all contexts") {
  const std::vector<PhaseSpec> all = {{"prefill", 257, 2048, 2048},
                                      {"prefill to 256", 2, 256, 128},
                                      {"decode", 1, 1, 1, {288, 864}},
                                      {"all logits", 1, 8, 8, {}, Rows::all}};
  const std::vector<PhaseSpec> quick = quick_phases(all);
  REQUIRE(quick.size() == 3);
  CHECK(quick[0] == PhaseSpec{"prefill", 2, 2048, 2048});
  CHECK(quick[1] == PhaseSpec{"decode", 1, 1, 1});
  CHECK(quick[2] == all[3]);
  CHECK(quick_phases({{"decode", 1, 1, 1, {288}}}).size() == 1);
  CHECK(quick_phases({}).empty());
}

TEST_CASE("rehearsal: what it judges need not be judged again, and gives the same choice") {
  Fixture f;
  Lab lab(f.builder, f.unmeasured());
  Program program;
  program.max_context = 64;
  program.target = "host";
  const KnownPhase none;
  const ChooseOptions options{
      .select = {.tries = 1, .max_context = 64}, .in_context = {}, .known = &none};
  PhaseChooser chooser(f.phase, program, options, lab);
  std::optional<PhaseChoice> foreseen;
  lab.judge(lab.rehearse([&] { foreseen = chooser.foresee(); }));
  const double judging = lab.spent().judging;
  CHECK(judging > 0);
  // Not by the files of verdicts.
  std::filesystem::remove_all(f.folder.path() / "verdicts");
  const PhaseChoice chosen = chooser.choose(f.quiet);
  CHECK(lab.spent().judging == judging);
  REQUIRE(foreseen);
  CHECK(foreseen->record.selections.size() == chosen.record.selections.size());
  for (std::size_t i = 0; i < chosen.record.selections.size(); ++i)
    CHECK(foreseen->record.selections[i].candidate == chosen.record.selections[i].candidate);
  require_admitted(chosen, lab);
  CHECK_THROWS(lab.rehearse([] { throw std::runtime_error("broken"); }));
  // It judges again after that.
  CHECK(lab.judge({}).empty());
}
