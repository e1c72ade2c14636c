// Covers: whatever implementations cost, every compute node is in one part, and the parts can run.
#include <doctest/doctest.h>

#include <random>
#include <set>

#include "compile/cover.h"
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
