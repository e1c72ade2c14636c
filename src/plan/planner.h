// Plans a step for a device: a bounded, ranked space of candidates for every region, and for every
// other region that fusing differently would give. It stands between the analyzer and whoever
// chooses (advisor, search), who see nothing but what is enumerated here.
#pragma once

#include "analyze/analyse.h"
#include "base/json.h"
#include "plan/fusion.h"
#include "plan/space.h"

namespace ac {

struct PlanOptions {
  std::size_t max_candidates = 64;          // a region
  std::vector<std::string> families = {};   // those that are planned; see plan_space
  Bindings at{.S = -1, .T = 1, .P = 1024};  // the sizes that costs are estimated for
  bool fuse = true;                         // else neighbourhoods are offered unfused only
  std::set<std::string> orders = {};        // if any: of products with weights (order_of)
  bool shared = false;                      // PhaseSpec::shared; see plan_space
};

struct Plans {
  DeviceInfo device;
  PlanOptions options;
  std::vector<Space> spaces;  // one a signature: those of analyse() first, in its order
  std::vector<int> space_of_region;
  std::vector<Neighbourhood> neighbourhoods;  // equal ones of different layers share spaces
};

Plans plan(const Regions& regions, const DeviceInfo& device, const PlanOptions& options = {});

// Every candidate legal on the device and of an id of its own, spaces ranked and within the bound,
// regions and neighbourhoods referring to spaces that are there. An error (bad_input) names the
// space.
void verify(const Plans& plans, const std::string& origin);

// For `inspect --stage candidates`: `shown` candidates of each space.
std::string print(const Plans& plans, const Regions& regions, std::size_t shown);
Json to_json(const Plans& plans, const Regions& regions);

}  // namespace ac
