#include "plan/planner.h"

#include <fmt/format.h>

#include <map>

namespace ac {
namespace {

// One space for each signature, made when first asked for.
class Spaces {
 public:
  Spaces(const StepGraph& step, Plans& plans) : step_(step), plans_(plans) {}

  int of(const Wanted& wanted) {
    return keep(signature_of(wanted), [&] {
      return plan_space(step_, wanted, plans_.options.at, plans_.device,
                        plans_.options.max_candidates, plans_.options.families);
    });
  }
  int of_sampling(const TensorType& logits) {
    const std::int64_t vocab = logits.shape.back().evaluate(plans_.options.at);
    return keep(fmt::format("argmax {}[{}]", short_name(logits.dtype), vocab), [&] {
      return plan_sampling(logits.dtype, vocab, plans_.device, plans_.options.max_candidates);
    });
  }

 private:
  template <class Make>
  int keep(const std::string& signature, const Make& make) {
    const auto [at, is_new] = known_.emplace(signature, static_cast<int>(plans_.spaces.size()));
    if (is_new) plans_.spaces.push_back(make());
    return at->second;
  }

  const StepGraph& step_;
  Plans& plans_;
  std::map<std::string, int> known_;
};

std::optional<double> total(const FusionOption& option, const std::vector<Space>& spaces) {
  if (option.refused) return std::nullopt;
  double sum = 0;
  for (const Part& part : option.parts) {
    const Space& space = spaces[static_cast<std::size_t>(part.space)];
    if (space.candidates.empty()) return std::nullopt;
    sum += space.candidates[0].cost.microseconds;
  }
  return sum;
}

}  // namespace

Plans plan(const Regions& regions, const DeviceInfo& device, const PlanOptions& options) {
  Plans plans{device, options, {}, {}, {}};
  Spaces spaces(regions.step, plans);
  for (const Region& region : regions.regions) plans.space_of_region.push_back(spaces.of({region}));

  const UseDef uses(regions.step);
  plans.neighbourhoods = propose_fusions(uses);
  if (!options.fuse)
    for (Neighbourhood& around : plans.neighbourhoods)
      std::erase_if(around.options,
                    [](const FusionOption& option) { return option.fusion != Fusion::none; });
  for (Neighbourhood& around : plans.neighbourhoods)
    for (FusionOption& option : around.options) {
      for (Part& part : option.parts)
        part.space = part.wanted ? spaces.of(*part.wanted)
                                 : spaces.of_sampling(regions.step.graph.type(around.nodes.back()));
      option.microseconds = total(option, plans.spaces);
    }
  return plans;
}

}  // namespace ac
