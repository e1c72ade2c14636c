#include "plan/cover.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace ac {
namespace {

// What a fallback is taken to cost: its ops one by one, each far below the device's bandwidth.
constexpr double kFallbackShare = 0.05;

}  // namespace

class Coverer {
 public:
  // `take`: null for what costs least.
  Coverer(Covers& covers, const SpaceCost& cost, const FusionTaker* take)
      : covers_(covers),
        regions_(covers.regions_),
        plans_(covers.plans_),
        cost_(cost),
        take_(take),
        uses_(covers.uses_) {}

  std::vector<const CoverPart*> run() {
    for (const Neighbourhood::Kind kind : kClaimOrder)
      for (std::size_t i = 0; i < plans_.neighbourhoods.size(); ++i)
        if (plans_.neighbourhoods[i].kind == kind) claim(i);
    for (std::size_t i = 0; i < regions_.regions.size(); ++i) add_rest(i);
    return in_order();
  }

 private:
  void claim(std::size_t neighbourhood) {
    const Neighbourhood& around = plans_.neighbourhoods[neighbourhood];
    for (const NodeId id : around.nodes)
      if (claimed_.count(id) > 0) return;
    const std::optional<std::size_t> best =
        take_ ? (*take_)(neighbourhood) : cheapest_option(regions_, plans_, around, cost_);
    if (!best) return;
    for (const Part& part : around.options[*best].parts)
      if (!is_open(around, part)) add(covers_.of(part));
  }

  void add(const CoverPart* part) {
    if (part->wanted)
      for (const NodeId id : part->wanted->region.nodes)
        if (is_compute(uses_.graph()[id])) claimed_.insert(id);
    parts_.push_back(part);
  }

  // A region of the analyzer, or of what is left of it each node by itself.
  void add_rest(std::size_t index) {
    std::vector<NodeId> free;
    std::size_t nodes = 0;
    for (const NodeId id : regions_.regions[index].nodes) {
      if (!is_compute(uses_.graph()[id])) continue;
      ++nodes;
      if (claimed_.count(id) == 0) free.push_back(id);
    }
    if (free.empty()) return;
    if (free.size() == nodes && (nodes == 1 || cost_(plans_.space_of_region[index])))
      return add(covers_.of_region(index));
    for (const NodeId id : free) add(covers_.single(id));
  }

  // Parts that are convex one by one may still need each other in a circle; one of those is then
  // taken apart.
  std::vector<const CoverPart*> in_order() {
    for (;;) {
      const std::vector<std::size_t> positions = by_position();
      std::vector<const CoverPart*> ordered;
      std::vector<bool> done(parts_.size());
      std::set<NodeId> known;
      bool progress = true;
      while (progress) {
        progress = false;
        for (const std::size_t i : positions) {
          if (done[i] || !is_ready(*parts_[i], known)) continue;
          if (parts_[i]->wanted)
            for (const NodeId id : parts_[i]->wanted->region.nodes) known.insert(id);
          ordered.push_back(parts_[i]);
          done[i] = progress = true;
        }
      }
      if (ordered.size() == parts_.size()) return ordered;
      take_one_apart(done);
    }
  }

  std::vector<std::size_t> by_position() const {
    std::vector<std::pair<int, std::size_t>> order;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      order.emplace_back(last_position(uses_, *parts_[i]), i);
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> indices;
    for (const auto& [position, i] : order) indices.push_back(i);
    return indices;
  }

  bool is_ready(const CoverPart& part, const std::set<NodeId>& known) const {
    if (!part.wanted) {
      const NodeId logits = storage_of(uses_.graph(), uses_.graph().outputs.at(0).node);
      return !is_compute(uses_.graph()[logits]) || known.count(logits) > 0;
    }
    for (const Parameter& input : part.wanted->region.inputs)
      if (is_compute(uses_.graph()[input.storage]) && known.count(input.storage) == 0) return false;
    return true;
  }

  void take_one_apart(const std::vector<bool>& done) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (done[i] || !parts_[i]->wanted || parts_[i]->wanted->region.ops.size() < 2) continue;
      const Wanted& whole = *parts_[i]->wanted;
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
      for (const NodeId id : whole.region.nodes)
        if (is_compute(uses_.graph()[id])) parts_.push_back(covers_.single(id));
      if (whole.argmax) parts_.push_back(&covers_.choosing_);
      return;
    }
    AC_UNREACHABLE();  // single nodes of a graph can always be ordered
  }

  Covers& covers_;
  const Regions& regions_;
  const Plans& plans_;
  const SpaceCost& cost_;
  const FusionTaker* const take_;
  const UseDef& uses_;
  std::set<NodeId> claimed_;
  std::vector<const CoverPart*> parts_;
};

const CoverPart* Covers::of(const Part& part) {
  return &options_.try_emplace(&part, CoverPart{part.wanted, part.space}).first->second;
}

const CoverPart* Covers::of_region(std::size_t index) {
  const auto known = of_regions_.find(index);
  if (known != of_regions_.end()) return &known->second;
  const CoverPart part{Wanted{regions_.regions[index]}, plans_.space_of_region[index]};
  return &of_regions_.emplace(index, part).first->second;
}

const CoverPart* Covers::single(NodeId id) {
  const auto known = singles_.find(id);
  if (known != singles_.end()) return &known->second;
  auto made = make_region(uses_, {id});
  const Wanted wanted{std::get<Region>(std::move(made))};
  return &singles_.emplace(id, CoverPart{wanted, space_of(signature_of(wanted))}).first->second;
}

int Covers::space_of(const std::string& signature) const {
  for (std::size_t i = 0; i < plans_.spaces.size(); ++i)
    if (plans_.spaces[i].signature == signature) return static_cast<int>(i);
  return -1;
}

std::vector<const CoverPart*> Covers::choose(const SpaceCost& cost, const FusionTaker* take) {
  return Coverer(*this, cost, take).run();
}

namespace {

std::vector<CoverPart> choose_once(const Regions& regions, const Plans& plans,
                                   const SpaceCost& cost, const FusionTaker* take) {
  std::vector<CoverPart> parts;
  Covers covers(regions, plans);
  for (const CoverPart* part : covers.choose(cost, take)) parts.push_back(*part);
  return parts;
}

}  // namespace

bool is_open(const Neighbourhood& around, const Part& part) {
  using Kind = Neighbourhood::Kind;
  if (around.kind == Kind::projections) return part.wanted->region.ops.size() < around.nodes.size();
  if (around.kind != Kind::products && around.kind != Kind::head) return false;
  if (!part.wanted || part.wanted->argmax || part.wanted->region.ops.size() != 1) return false;
  const Op op = part.wanted->region.ops[0];
  return op == Op::add || op == Op::rms_norm || op == Op::layer_norm;
}

bool chooses_token(const CoverPart& part) { return !part.wanted || part.wanted->argmax; }

std::vector<CoverPart> whole_cover(std::vector<CoverPart> cover) {
  if (std::ranges::none_of(cover, chooses_token)) cover.push_back({});
  return cover;
}

int last_position(const UseDef& uses, const CoverPart& part) {
  if (!part.wanted) return static_cast<int>(uses.order().size());
  int last = 0;
  for (const NodeId id : part.wanted->region.nodes) last = std::max(last, uses.position(id));
  return last;
}

std::vector<std::string> op_names(const CoverPart& part) {
  return part.wanted ? op_names(part.wanted->region) : std::vector<std::string>();
}

std::optional<int> find_space(const Plans& plans, const std::optional<Wanted>& wanted) {
  const std::string signature = wanted ? signature_of(*wanted) : "";
  const auto is_it = [&](const Space& space) {
    if (wanted) return space.signature == signature;
    return !space.candidates.empty() &&
           std::holds_alternative<Implementation<SamplingTask>>(space.candidates[0].choice);
  };
  const auto found = std::ranges::find_if(plans.spaces, is_it);
  if (found == plans.spaces.end()) return std::nullopt;
  return static_cast<int>(found - plans.spaces.begin());
}

int find_or_plan(const StepGraph& step, const std::optional<Wanted>& wanted, Plans& plans) {
  if (const std::optional<int> known = find_space(plans, wanted)) return *known;
  const PlanOptions& options = plans.options;
  if (wanted) {
    plans.spaces.push_back(plan_space(step, *wanted, options.at, plans.device,
                                      options.max_candidates, options.families, {},
                                      options.shared));
  } else {
    const TensorType& logits = step.graph.type(step.graph.outputs.at(0).node);
    plans.spaces.push_back(plan_sampling(logits.dtype, logits.shape.back().constant(), plans.device,
                                         options.max_candidates));
  }
  return static_cast<int>(plans.spaces.size()) - 1;
}

double fallback_cost(const Regions& regions, const Plans& plans, const Region& region) {
  const DeviceInfo& device = plans.device;
  double total = 0;
  for (const NodeId id : region.nodes) {
    if (!is_compute(regions.step.graph[id])) continue;
    const Work& work = regions.node_work[static_cast<std::size_t>(id)];
    const Amount amount = evaluate(work, plans.options.at);
    total += device.launch + double(amount.bytes()) / (device.bandwidth * kFallbackShare) +
             double(amount.flops) / (device.flops * kFallbackShare);
  }
  return total * 1e6;
}

namespace {

// What the nodes of a neighbourhood cost if they are left to others: the cheapest options of its
// products and attention. No node is in both.
double cost_apart(const Regions& regions, const Plans& plans, const Neighbourhood& around,
                  const SpaceCost& cost) {
  const std::set<NodeId> nodes(around.nodes.begin(), around.nodes.end());
  double total = 0;
  for (const Neighbourhood& inner : plans.neighbourhoods) {
    const bool counts =
        inner.kind == Neighbourhood::Kind::products || inner.kind == Neighbourhood::Kind::attention;
    if (!counts || !nodes.contains(inner.nodes.front())) continue;
    if (const auto best = cheapest_option(regions, plans, inner, cost))
      total += option_cost(regions, plans, inner, inner.options[*best], cost);
  }
  return total;
}

}  // namespace

double option_cost(const Regions& regions, const Plans& plans, const Neighbourhood& around,
                   const FusionOption& option, const SpaceCost& cost) {
  if (option.parts.empty()) return cost_apart(regions, plans, around, cost);
  double total = 0;
  for (const Part& part : option.parts) {
    const auto of = cost(part.space);
    total += of ? *of : part.wanted ? fallback_cost(regions, plans, part.wanted->region) : 0;
  }
  return total;
}

std::optional<std::size_t> cheapest_option(const Regions& regions, const Plans& plans,
                                           const Neighbourhood& around, const SpaceCost& cost) {
  std::optional<std::size_t> best;
  double least = 0;
  for (std::size_t i = 0; i < around.options.size(); ++i) {
    if (around.options[i].refused) continue;
    const double total = option_cost(regions, plans, around, around.options[i], cost);
    if (!best || total < least) best = i, least = total;
  }
  return best;
}

std::vector<CoverPart> choose_cover(const Regions& regions, const Plans& plans,
                                    const SpaceCost& cost) {
  return choose_once(regions, plans, cost, nullptr);
}

std::vector<CoverPart> choose_cover(const Regions& regions, const Plans& plans,
                                    const SpaceCost& cost, const FusionTaker& take) {
  return choose_once(regions, plans, cost, &take);
}

FusionTaker without_layers(const Regions& regions, const Plans& plans, const SpaceCost& cost) {
  return [&regions, &plans, cost](std::size_t neighbourhood) {
    const Neighbourhood& around = plans.neighbourhoods[neighbourhood];
    const auto is_apart = [](const FusionOption& option) { return option.parts.empty(); };
    if (around.kind != Neighbourhood::Kind::layers)
      return cheapest_option(regions, plans, around, cost);
    return std::optional<std::size_t>(std::ranges::find_if(around.options, is_apart) -
                                      around.options.begin());
  };
}

std::vector<CoverPart> parts_of_all_cuts(const Regions& regions, const Plans& plans) {
  std::vector<CoverPart> parts;
  for (std::size_t i = 0; i < regions.regions.size(); ++i)
    if (plans.space_of_region[i] >= 0)
      parts.push_back({Wanted{regions.regions[i]}, plans.space_of_region[i]});
  for (const Neighbourhood& around : plans.neighbourhoods) {
    std::map<int, std::optional<Wanted>> once;  // of what one or several of its options have
    for (const FusionOption& option : around.options)
      for (const Part& part : option.parts) once.emplace(part.space, part.wanted);
    for (const auto& [space, wanted] : once)
      if (space >= 0) parts.push_back({wanted, space});
  }
  return parts;
}

}  // namespace ac
