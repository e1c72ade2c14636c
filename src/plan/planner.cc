#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace ac {
namespace {

// One space for each signature, made when first asked for.
class Spaces {
 public:
  Spaces(const StepGraph& step, Plans& plans) : step_(step), plans_(plans) {}

  int of(const Wanted& wanted) {
    return keep(signature_of(wanted), [&] { return plan(wanted); });
  }
  // Whether anything but the fallback can compute it; no space is kept for what can not.
  bool is_planned(const Wanted& wanted) {
    const std::string signature = signature_of(wanted);
    if (known_.count(signature) > 0 || unplanned_.count(signature) > 0)
      return known_.count(signature) > 0;
    Space space = plan(wanted);
    if (space.candidates.empty()) return unplanned_.insert(signature), false;
    keep(signature, [&] { return std::move(space); });
    return true;
  }
  int of_sampling(const TensorType& logits) {
    const std::int64_t vocab = logits.shape.back().evaluate(plans_.options.at);
    return keep(fmt::format("argmax {}[{}]", short_name(logits.dtype), vocab), [&] {
      return plan_sampling(logits.dtype, vocab, plans_.device, plans_.options.max_candidates);
    });
  }

 private:
  Space plan(const Wanted& wanted) const {
    return plan_space(step_, wanted, plans_.options.at, plans_.device,
                      plans_.options.max_candidates, plans_.options.families, plans_.options.orders,
                      plans_.options.shared);
  }
  template <class Make>
  int keep(const std::string& signature, const Make& make) {
    const auto [at, is_new] = known_.emplace(signature, static_cast<int>(plans_.spaces.size()));
    if (is_new) plans_.spaces.push_back(make());
    return at->second;
  }

  const StepGraph& step_;
  Plans& plans_;
  std::map<std::string, int> known_;
  std::set<std::string> unplanned_;
};

// Products and attention in one, and layers, are worth a thought only where kernels do that; apart,
// they are neighbourhoods anyway.
bool is_idle(const Neighbourhood& around, Spaces& spaces) {
  const auto is_planned = [&](const Part& part) { return spaces.is_planned(*part.wanted); };
  const auto is_whole = [&](const FusionOption& option) {
    return option.fusion == Fusion::full && !option.refused &&
           std::ranges::all_of(option.parts, is_planned);
  };
  return (around.kind == Neighbourhood::Kind::projections ||
          around.kind == Neighbourhood::Kind::layers) &&
         std::ranges::none_of(around.options, is_whole);
}

std::optional<double> total(const FusionOption& option, const std::vector<Space>& spaces) {
  if (option.refused || option.parts.empty()) return std::nullopt;
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
  std::erase_if(plans.neighbourhoods, [&](const Neighbourhood& around) {
    // Sequences that share decode share its products.
    return is_idle(around, spaces) ||
           (options.shared && around.kind == Neighbourhood::Kind::layers);
  });
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
