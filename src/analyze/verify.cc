#include <map>

#include "analyze/analyse.h"
#include "base/error.h"

namespace ac {
namespace {

class Verifier {
 public:
  Verifier(const Regions& regions, const std::string& origin)
      : regions_(regions), origin_(origin), uses_(regions.step) {}

  void run() {
    for (std::size_t i = 0; i < regions_.regions.size(); ++i) check_region(i);
    for (const NodeId id : uses_.order())
      if (is_compute(uses_.graph()[id]) && home_.count(id) == 0)
        bad_input("{}: {} is in no region", origin_, describe(uses_.graph(), id));
    check_signatures();
    if (regions_.node_work.size() != uses_.graph().nodes.size())
      bad_input("{}: work of {} nodes is given, of {}", origin_, regions_.node_work.size(),
                uses_.graph().nodes.size());
  }

 private:
  void check_region(std::size_t index) {
    const Region& region = regions_.regions[index];
    if (region.id != static_cast<int>(index))
      bad_input("{}: region {} stands at place {}", origin_, region.id, index);
    const auto made = make_region(uses_, region.nodes);
    if (const auto* refusal = std::get_if<Boundary>(&made))
      bad_input("{}: region {} is not legal ({}): {}", origin_, index, to_string(refusal->reason),
                refusal->text);
    Region expected = std::get<Region>(made);
    expected.id = region.id;
    expected.boundaries = region.boundaries;
    if (!(expected == region))
      bad_input("{}: region {} does not describe its nodes", origin_, index);
    for (const NodeId id : region.nodes)
      if (is_compute(uses_.graph()[id])) {
        const auto [other, is_new] = home_.emplace(id, index);
        if (!is_new)
          bad_input("{}: {} is in regions {} and {}", origin_, describe(uses_.graph(), id),
                    other->second, index);
      }
    for (const Parameter& input : region.inputs)
      if (is_compute(uses_.graph()[input.storage]) && home_.count(input.storage) == 0)
        bad_input("{}: region {} runs before its {}, {}", origin_, index, input.name,
                  describe(uses_.graph(), input.storage));
  }

  void check_signatures() const {
    std::map<std::string, std::vector<int>> expected, given;
    for (const Region& region : regions_.regions) expected[region.signature].push_back(region.id);
    for (const Equals& equals : regions_.signatures) {
      if (!given.emplace(equals.signature, equals.regions).second)
        bad_input("{}: a signature is listed twice: {}", origin_, equals.signature);
    }
    if (given != expected) bad_input("{}: the signatures are not those of the regions", origin_);
  }

  const Regions& regions_;
  const std::string& origin_;
  UseDef uses_;
  std::map<NodeId, std::size_t> home_;
};

}  // namespace

void verify(const Regions& regions, const std::string& origin) {
  verify(regions.step, origin);
  Verifier(regions, origin).run();
}

}  // namespace ac
