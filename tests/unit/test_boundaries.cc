// The boundaries that the paper asks for, end to end: from the text of a step to regions that say
// why they end, to spaces, and to implementations that the gate admits all the same.
#include <doctest/doctest.h>

#include <set>

#include "ir/graph_text.h"
#include "select/select.h"
#include "small_compilation.h"

using namespace ac;
using namespace ac::test;

namespace {

struct Chain {
  const char* name;
  Reason reason;
  int from, to;       // the nodes that it lies between, or one node twice
  const char* alone;  // the op that no other may join
  const char* text;
};

// Logits of one row stand at the end of each, so that a token can be chosen.
const Chain kChains[] = {
    {"an op in place", Reason::state, 3, 4, "append_attend", R"(step "in_place" {
  state 0 : kv f32 keys=2x16 values=2x16 window=0 @ "attention"
  %0 = input {name="ids"} : f32[1, 32]
  %1 = relu(%0) : f32[1, 32]
  %2 = reshape(%1) {shape=[1, 2, 16]} : f32[1, 2, 16]
  %3 = append_attend(%2, %2, %2) {state=0, scale=0.25, window=0, softcap=0} : f32[1, 2, 16]
  %4 = neg(%3) : f32[1, 2, 16]
  %5 = reshape(%4) {shape=[1, 32]} : f32[1, 32]
  return %5 as "logits"
})"},
    {"an aliased output", Reason::aliasing, 1, 3, "", R"(step "aliased" {
  %0 = input {name="ids"} : f32[1, 32]
  %1 = relu(%0) : f32[1, 32]
  %2 = reshape(%1) {shape=[1, 4, 8]} : f32[1, 4, 8]
  %3 = neg(%1) : f32[1, 32]
  return %3 as "logits"
  return %2 as "seen"
})"},
    {"a mixed-dtype chain", Reason::mixed_dtype, 1, 2, "cast", R"(step "mixed" {
  %0 = input {name="ids"} : f16[1, 32]
  %1 = relu(%0) : f16[1, 32]
  %2 = cast(%1) {dtype=f32} : f32[1, 32]
  %3 = exp(%2) : f32[1, 32]
  %4 = cast(%3) {dtype=f16} : f16[1, 32]
  return %4 as "logits"
})"},
    {"a dynamic reduction axis", Reason::dynamic_shape, 1, 2, "sum", R"(step "dynamic" {
  %0 = input {name="ids"} : f32[T, 32]
  %1 = relu(%0) : f32[T, 32]
  %2 = sum(%1) {axes=[0], keep=true} : f32[1, 32]
  %3 = neg(%2) : f32[1, 32]
  return %3 as "logits"
})"},
};

bool has(const Region& region, Op op) {
  return std::ranges::find(region.ops, op) != region.ops.end();
}

}  // namespace

TEST_CASE("boundaries: from a step's text to regions that end where they must") {
  for (const Chain& chain : kChains) {
    CAPTURE(chain.name);
    const StepGraph step = parse_step(chain.text, chain.name);
    CHECK(print(step) == print(parse_step(print(step), chain.name)));
    const Regions regions = analyse(step);
    verify(regions, chain.name);
    bool told = false;
    for (const Region& region : regions.regions)
      for (const Boundary& boundary : region.boundaries)
        told = told || (boundary.reason == chain.reason && boundary.from == chain.from &&
                        boundary.to == chain.to && !boundary.text.empty());
    CHECK(told);
    INFO(print(regions, {.S = -1, .T = 5, .P = 3}));
    CHECK(print(regions, {.S = -1, .T = 5, .P = 3}).find(to_string(chain.reason)) !=
          std::string::npos);
    for (const Region& region : regions.regions)
      if (const auto op = op_from_name(chain.alone); op && has(region, *op))
        CHECK(region.ops.size() == 1);
    // Who asks for a fusion across it is refused for the same reason.
    const auto across = make_region(step, {chain.from, chain.to});
    REQUIRE(std::holds_alternative<Boundary>(across));
    CHECK(std::get<Boundary>(across).reason == chain.reason);
  }
}

TEST_CASE("boundaries: what they leave alone is computed, by fallbacks that the gate admits") {
  FreshBuilder fresh;
  Progress quiet(true);
  for (const Chain& chain : kChains) {
    CAPTURE(chain.name);
    CompiledPhase phase;
    phase.regions = analyse(parse_step(chain.text, chain.name));
    phase.plans = plan(phase.regions, device_info("host"),
                       {.max_candidates = 4, .at = {.S = -1, .T = 5, .P = 3}});
    Lab lab(fresh.builder, fresh.unmeasured());
    const std::vector<StateSpec> states = {kv_state(DType::f32, 2, 16, 16, 0, "", 64)};
    Selector selector(phase, states, {.tries = 0, .max_context = 64}, lab);
    selector.run(quiet);
    const Alternatives alternatives = selector.alternatives();
    CHECK(!alternatives.parts.empty());
    CHECK(selector.confirm({first_choice(alternatives)}, quiet));
    phase.selections = selector.selections({first_choice(alternatives)});
    std::set<std::string> computed;
    for (const Selection& selection : phase.selections) {
      CHECK(!selection.trials.empty());
      computed.insert(selection.ops.begin(), selection.ops.end());
    }
    for (const Node& node : phase.regions.step.graph.nodes)
      if (is_compute(node)) CHECK(computed.count(std::string(info(node.op).name)) == 1);
  }
}
