// Covers: whatever implementations cost, every compute node is in one part, and the parts can run.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "plan/cover.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

void check(const Regions& regions, const std::vector<CoverPart>& parts) {
  const UseDef uses(regions.step);
  std::set<NodeId> done;
  int choosers = 0;
  bool has_logits = false;
  for (const CoverPart& part : parts) {
    if (!part.wanted) {
      CHECK(has_logits);
      ++choosers;
      continue;
    }
    choosers += part.wanted->argmax;
    const Region& region = part.wanted->region;
    for (const Parameter& input : region.inputs)
      if (is_compute(uses.graph()[input.storage])) CHECK(done.count(input.storage) == 1);
    for (const NodeId id : region.nodes)
      if (is_compute(uses.graph()[id])) CHECK(done.insert(id).second);
    has_logits = has_logits || region.nodes.back() == regions.step.graph.outputs[0].node ||
                 done.count(storage_of(uses.graph(), regions.step.graph.outputs[0].node)) > 0;
  }
  CHECK(choosers <= 1);
  for (std::size_t i = 0; i < regions.step.graph.nodes.size(); ++i)
    if (is_compute(regions.step.graph.nodes[i])) CHECK(done.count(static_cast<NodeId>(i)) == 1);
}

}  // namespace

TEST_CASE("every cover computes each node once, in an order that can run") {
  const Dim T(Symbol::T);
  std::mt19937 random(11);
  for (const StepGraph& step :
       {one_layer_qwen3(), gemma_like(2, 1), gemma_like(2, T), gpt2_like(2, 1), gpt2_like(2, T)}) {
    CAPTURE(step.graph.name);
    for (const unsigned seed : {0u, 1u}) {
      const Regions regions = analyse(seed == 0 ? step : shuffled(step, seed));
      const Plans plans = plan(regions, device_info("sm_90"), {.max_candidates = 2});
      std::set<std::size_t> sizes;
      for (int round = 0; round < 30; ++round) {
        // From no implementations at all to one of everything.
        std::vector<std::optional<double>> costs;
        for (std::size_t i = 0; i < plans.spaces.size(); ++i) {
          const bool has_one = static_cast<int>(random() % 29) < round;
          costs.push_back(has_one ? std::optional(1.0 + random() % 100) : std::nullopt);
        }
        const auto parts = choose_cover(regions, plans, [&](int space) {
          return space < 0 ? std::nullopt : costs[static_cast<std::size_t>(space)];
        });
        check(regions, parts);
        sizes.insert(parts.size());
      }
      CHECK(sizes.size() > 1);  // costs matter
    }
  }
}

TEST_CASE("cuts are near the cheapest if known parts cost little more and many of them do") {
  const Regions regions = analyse(one_layer_qwen3());
  const Plans plans = plan(regions, device_info("sm_90"), {.max_candidates = 2});
  // Of the head, two kernels cost 5 % more than one, and all others many times that.
  const auto head =
      std::ranges::find(plans.neighbourhoods, Neighbourhood::Kind::head, &Neighbourhood::kind);
  REQUIRE(head != plans.neighbourhoods.end());
  const auto whole = std::ranges::find(
      head->options, 1, [](const FusionOption& option) { return std::ssize(option.parts); });
  const auto two = std::ranges::find_if(head->options, [](const FusionOption& option) {
    return option.parts.size() == 2 && !option.refused;
  });
  REQUIRE(whole != head->options.end());
  REQUIRE(two != head->options.end());
  std::map<int, double> of_head;
  for (const FusionOption& option : head->options)
    for (const Part& part : option.parts) of_head[part.space] = 1000;
  of_head[whole->parts[0].space] = 100;
  of_head[two->parts[0].space] = 50, of_head[two->parts[1].space] = 55;
  double elsewhere = 1;
  std::set<int> unknown;
  const auto cost = [&](int space) -> std::optional<double> {
    if (space < 0 || unknown.count(space) > 0) return std::nullopt;
    const auto found = of_head.find(space);
    return found == of_head.end() ? elsewhere : found->second;
  };
  const std::vector<NearCut> near = near_cuts(regions, plans, cost);
  REQUIRE(near.size() == 2);
  CHECK(near[0].what.empty());
  CHECK(near[1].what == two->text);
  const auto spaces_of = [](const std::vector<CoverPart>& parts) {
    std::set<int> spaces;
    for (const CoverPart& part : parts) spaces.insert(part.space);
    return spaces;
  };
  CHECK(spaces_of(near[0].parts) == spaces_of(choose_cover(regions, plans, cost)));
  CHECK(spaces_of(near[0].parts).count(whole->parts[0].space) == 1);
  for (const Part& part : two->parts) CHECK(spaces_of(near[1].parts).count(part.space) == 1);
  for (const NearCut& cut : near) check(regions, cut.parts);

  const auto is_near = [&] {
    return std::ranges::any_of(near_cuts(regions, plans, cost),
                               [&](const NearCut& cut) { return cut.what == two->text; });
  };
  CHECK(is_near());
  unknown = {two->parts[1].space};
  CHECK(!is_near());
  unknown.clear(), elsewhere = 1e5;  // of such a step, the head is nothing
  CHECK(!is_near());
  elsewhere = 1, of_head[two->parts[1].space] = 65;
  CHECK(!is_near());
}
