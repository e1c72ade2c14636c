#include <algorithm>
#include <set>

#include "base/error.h"
#include "plan/planner.h"

namespace ac {
namespace {

void check(const Space& space, const Plans& plans, const std::string& origin) {
  const auto refuse = [&](const std::string& what) {
    bad_input("{}: the space of {}: {}", origin, space.signature, what);
  };
  const auto bounded = static_cast<std::size_t>(
      std::ranges::count(space.candidates, false, &Candidate::for_several));
  if (bounded > plans.options.max_candidates || space.legal > space.enumerated ||
      space.candidates.size() > space.legal)
    refuse(fmt::format("{} candidates of {} legal and {} enumerated, where {} are the most",
                       space.candidates.size(), space.legal, space.enumerated,
                       plans.options.max_candidates));
  std::set<std::string> ids;
  double last = 0;
  bool for_several = false;
  for (const Candidate& candidate : space.candidates) {
    if (!ids.insert(candidate.id).second) refuse(candidate.id + " is in it twice");
    if (const char* why = why_illegal(candidate.choice, plans.device))
      refuse(fmt::format("{} is illegal: {}", candidate.id, why));
    if (candidate.for_several && !for_several) for_several = true, last = 0;
    if (candidate.cost.microseconds < last || candidate.for_several != for_several)
      refuse(candidate.id + " is not where its rank is");
    last = candidate.cost.microseconds;
  }
}

}  // namespace

void verify(const Plans& plans, const std::string& origin) {
  for (const Space& space : plans.spaces) check(space, plans, origin);
  const auto exists = [&](int space) {
    return space >= 0 && static_cast<std::size_t>(space) < plans.spaces.size();
  };
  if (!std::ranges::all_of(plans.space_of_region, exists))
    bad_input("{}: a region has no space", origin);
  for (const Neighbourhood& around : plans.neighbourhoods)
    for (const FusionOption& option : around.options)
      for (const Part& part : option.parts)
        if (!exists(part.space)) bad_input("{}: {} has no space", origin, option.text);
}

}  // namespace ac
