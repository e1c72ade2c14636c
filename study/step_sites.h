// The space of a step whose schedules are too many to list, as a recording holds it: the choices of
// each site and, for every way to fuse, which sites are there.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "search/point_space.h"

namespace ac::tune {
class StepSpace;
}

namespace ac::study {

struct StepSites {
  std::vector<search::Site> sites;  // those that fuse first; none has only_if
  std::size_t fusions = 0;          // how many fuse
  // By the choice of each that fuses, -1 for one that is not there: of the others, which are.
  std::map<std::vector<int>, std::vector<bool>> cuts;

  // For one search; these sites must outlive it.
  std::unique_ptr<search::ProductSpace> space() const;
  bool is_there(std::size_t site, const std::vector<int>& choices) const;
};

// More ways to fuse than a recording holds are an error (wrong_usage).
StepSites sites_of(const tune::StepSpace& space);
Json to_json(const StepSites& sites);
// What contradicts itself is an error (bad_input).
StepSites sites_from(const Json& json, const std::string& origin);

Json fields_json(const search::SitePlan& part);
// "family" and "fields" of an object; errors (bad_input) begin with `where`.
search::SitePlan site_plan_from(const Json& json, std::string site, const std::string& where);

}  // namespace ac::study
