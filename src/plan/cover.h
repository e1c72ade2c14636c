// Which regions a step is cut into: of each neighbourhood the option that costs least, and what no
// neighbourhood claims as the analyzer grouped it, so that every compute node is in exactly one
// part and the parts can run one after the other.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace ac {

// A region to compute, and the space of its candidates; a part without a region chooses the token.
struct CoverPart {
  std::optional<Wanted> wanted;
  int space = -1;  // in Plans; -1: none was planned
};

bool chooses_token(const CoverPart& part);
std::vector<std::string> op_names(const CoverPart& part);
// With a part of its own for what chooses the token, where no part does: it is no node of the
// graph.
std::vector<CoverPart> whole_cover(std::vector<CoverPart> cover);
// Of its last node, in an order in which the step can run; what chooses the token comes last.
int last_position(const UseDef& uses, const CoverPart& part);

// The space of what is wanted or, without it, of what only chooses the token.
std::optional<int> find_space(const Plans& plans, const std::optional<Wanted>& wanted);
// It is planned and added if there is none.
int find_or_plan(const StepGraph& step, const std::optional<Wanted>& wanted, Plans& plans);

// Microseconds of the best that is left of a space, or nothing if nothing is.
using SpaceCost = std::function<std::optional<double>(int space)>;

// Of a neighbourhood of the plans that may be claimed whole: which of its options is taken; none if
// it is left as it is.
using FusionTaker = std::function<std::optional<std::size_t>(std::size_t neighbourhood)>;

// What the fallback of a region is taken to cost, in microseconds.
double fallback_cost(const Regions& regions, const Plans& plans, const Region& region);

// Microseconds of all its parts; of what leaves all nodes to other neighbourhoods, of the cheapest
// options of these.
double option_cost(const Regions& regions, const Plans& plans, const Neighbourhood& around,
                   const FusionOption& option, const SpaceCost& cost);
// None if all are refused.
std::optional<std::size_t> cheapest_option(const Regions& regions, const Plans& plans,
                                           const Neighbourhood& around, const SpaceCost& cost);

// In an order that can run. If no part chooses the token on its own or with the logits, there is
// none in the cover.
std::vector<CoverPart> choose_cover(const Regions& regions, const Plans& plans,
                                    const SpaceCost& cost);
// With other options than those that cost least; `cost` speaks for what no neighbourhood claims.
std::vector<CoverPart> choose_cover(const Regions& regions, const Plans& plans,
                                    const SpaceCost& cost, const FusionTaker& take);

// Whether a cover that takes an option with this part leaves the part to what is chosen later: a
// sum or norm that products leave by itself may still go together with the other. And so is what is
// not one with attention, which are neighbourhoods of their own.
bool is_open(const Neighbourhood& around, const Part& part);

// Covers of one step, whose parts are shared: what several of them have is one object, which is
// valid as long as this is. For one thread.
class Covers {
 public:
  // The plans must outlive it, and keep their spaces.
  Covers(const Regions& regions, const Plans& plans)
      : regions_(regions), plans_(plans), uses_(regions.step) {}

  // `take`: null for what costs least.
  std::vector<const CoverPart*> choose(const SpaceCost& cost, const FusionTaker* take);
  // A node by itself.
  const CoverPart* single(NodeId id);

 private:
  friend class Coverer;
  const CoverPart* of(const Part& part);  // of an option of a neighbourhood
  const CoverPart* of_region(std::size_t index);
  int space_of(const std::string& signature) const;

  const Regions& regions_;
  const Plans& plans_;
  const UseDef uses_;
  std::map<const Part*, CoverPart> options_;
  std::map<std::size_t, CoverPart> of_regions_;
  std::map<NodeId, CoverPart> singles_;
  const CoverPart choosing_;  // the token, by itself
};

// Takes what costs least, but leaves layers apart.
FusionTaker without_layers(const Regions& regions, const Plans& plans, const SpaceCost& cost);

// A way to cut a step; `what` it fuses, or not, other than the one that costs least.
struct NearCut {
  std::string what;
  std::vector<CoverPart> parts;
};
// The cut that costs least, and those that may be as fast: with another option of one kind of
// neighbourhood, of parts whose costs are known and come to little more. `cost` knows what was
// measured: what might be cheaper, were it tried, is none of these.
std::vector<NearCut> near_cuts(const Regions& regions, const Plans& plans, const SpaceCost& cost);

// Neighbourhoods are asked about by kind: those of the first one first.
inline constexpr Neighbourhood::Kind kClaimOrder[] = {
    Neighbourhood::Kind::layers,      Neighbourhood::Kind::head,
    Neighbourhood::Kind::projections, Neighbourhood::Kind::attention,
    Neighbourhood::Kind::products,    Neighbourhood::Kind::residual_norm};

// Every region that is in any cut, once for each place in the step where it may stand: as the
// analyzer grouped it, and in each neighbourhood once. What no space was planned for is left out.
std::vector<CoverPart> parts_of_all_cuts(const Regions& regions, const Plans& plans);

}  // namespace ac
