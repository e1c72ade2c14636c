#include "study/step_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "tune/step_space.h"

namespace ac::study {
namespace {

constexpr std::size_t kMostCuts = 20'000;

Json choice_json(const search::Point& choice) {
  return {{"plan", choice.id},
          {"family", choice.parts.at(0).family},
          {"fields", fields_json(choice.parts.at(0))},
          {"predicted_us", std::round(choice.predicted * 1e4) / 1e4}};
}

search::Site site_from(const Json& json, const std::string& where) {
  search::Site site;
  site.name = json.at("site").get<std::string>();
  site.uses = json.at("uses").get<double>();
  if (!(site.uses > 0)) bad_input("{}: \"uses\" is not positive", where);
  std::set<std::string> known;
  for (const Json& choice : json.at("choices")) {
    search::Point point{choice.at("plan").get<std::string>(),
                        {site_plan_from(choice, "", where)},
                        choice.at("predicted_us").get<double>()};
    if (!known.insert(point.id).second)
      bad_input("{}: site {} has {} twice", where, quote(site.name), quote(point.id));
    if (!(point.predicted >= 0)) bad_input("{}: \"predicted_us\" is negative", where);
    site.choices.push_back(std::move(point));
  }
  if (site.choices.empty()) bad_input("{}: site {} has no choice", where, quote(site.name));
  return site;
}

// Sites that fuse are there or not by those before them alone.
void check_prefixes(const StepSites& sites, const std::string& where) {
  const std::vector<int>* before = nullptr;
  for (const auto& [fusions, there] : sites.cuts) {
    if (before) {
      const auto [a, b] = std::ranges::mismatch(*before, fusions);
      if (*a < 0 || *b < 0)
        bad_input("{}: \"cuts\": whether site {} is there contradicts itself", where,
                  a - before->begin());
    }
    before = &fusions;
  }
}

}  // namespace

Json fields_json(const search::SitePlan& part) {
  Json fields = Json::object();
  for (const search::Field& field : part.fields)
    std::visit([&](const auto& value) { fields[field.name] = value; }, field.value);
  return fields;
}

search::SitePlan site_plan_from(const Json& json, std::string site, const std::string& where) {
  if (!json.contains("family")) bad_input("{}: has no field \"family\"", where);
  if (!json.contains("fields")) bad_input("{}: has no field \"fields\"", where);
  if (!json.at("family").is_string()) bad_input("{}: \"family\" is not a text", where);
  if (!json.at("fields").is_object()) bad_input("{}: \"fields\" is not an object", where);
  search::SitePlan part{std::move(site), json.at("family").get<std::string>(), {}};
  for (const auto& [name, value] : json.at("fields").items()) {
    if (value.is_number_integer())
      part.fields.push_back({name, value.get<std::int64_t>()});
    else if (value.is_boolean())
      part.fields.push_back({name, std::int64_t{value.get<bool>()}});
    else if (value.is_string())
      part.fields.push_back({name, value.get<std::string>()});
    else
      bad_input("{}: \"fields\": {} is no whole number, text, true or false", where, quote(name));
  }
  return part;
}

std::unique_ptr<search::ProductSpace> StepSites::space() const {
  std::vector<search::Site> with_conditions = sites;
  for (std::size_t i = 0; i < sites.size(); ++i)
    with_conditions[i].only_if = [this, i](const std::vector<int>& choices) {
      return is_there(i, choices);
    };
  return std::make_unique<search::ProductSpace>(std::move(with_conditions));
}

bool StepSites::is_there(std::size_t site, const std::vector<int>& choices) const {
  const auto known = static_cast<std::ptrdiff_t>(std::min(site, fusions));
  const std::vector<int> before(choices.begin(), choices.begin() + known);
  // The first cut that begins with these.
  const auto cut = cuts.lower_bound(before);
  if (cut == cuts.end() || !std::ranges::equal(before, std::span(cut->first).first(before.size())))
    return false;
  return site < fusions ? cut->first[site] >= 0 : cut->second[site];
}

StepSites sites_of(const tune::StepSpace& space) {
  StepSites made;
  made.sites = space.points().sites();
  for (search::Site& site : made.sites) site.only_if = {};
  made.fusions = space.fusion_sites();
  const auto all = space.all_fused(kMostCuts);
  if (!all) wrong_usage("--random: the step can be fused in more than {} ways", kMostCuts);
  for (const tune::StepSpace::Fused& fused : *all) {
    std::vector<bool>& there = made.cuts[fused.fusions];
    there.resize(made.sites.size());
    for (const std::size_t site : fused.there) there[site] = true;
  }
  return made;
}

Json to_json(const StepSites& sites) {
  Json list = Json::array(), cuts = Json::array();
  for (const search::Site& site : sites.sites) {
    Json choices = Json::array();
    for (const search::Point& choice : site.choices) choices.push_back(choice_json(choice));
    list.push_back({{"site", site.name}, {"uses", site.uses}, {"choices", std::move(choices)}});
  }
  for (const auto& [fusions, there] : sites.cuts) {
    Json which = Json::array();
    for (std::size_t i = sites.fusions; i < there.size(); ++i)
      if (there[i]) which.push_back(i);
    cuts.push_back({{"fusions", fusions}, {"there", std::move(which)}});
  }
  return {{"fusions", sites.fusions}, {"sites", std::move(list)}, {"cuts", std::move(cuts)}};
}

StepSites sites_from(const Json& json, const std::string& origin) try {
  StepSites made;
  made.fusions = json.at("fusions").get<std::size_t>();
  std::set<std::string> names;
  for (const Json& site : json.at("sites")) {
    made.sites.push_back(site_from(site, origin));
    if (!names.insert(made.sites.back().name).second)
      bad_input("{}: site {} is there twice", origin, quote(made.sites.back().name));
  }
  if (made.sites.empty() || made.fusions > made.sites.size())
    bad_input("{}: \"fusions\" is more than there are sites", origin);
  for (const Json& cut : json.at("cuts")) {
    const auto fusions = cut.at("fusions").get<std::vector<int>>();
    if (fusions.size() != made.fusions)
      bad_input("{}: \"cuts\": expected {} fusions", origin, made.fusions);
    for (std::size_t i = 0; i < fusions.size(); ++i)
      if (fusions[i] < -1 || fusions[i] >= static_cast<int>(made.sites[i].choices.size()))
        bad_input("{}: \"cuts\": site {} has no choice {}", origin, quote(made.sites[i].name),
                  fusions[i]);
    std::vector<bool> there(made.sites.size());
    for (const Json& site : cut.at("there")) {
      const auto index = site.get<std::size_t>();
      if (index < made.fusions || index >= there.size())
        bad_input("{}: \"cuts\": there is no site {}", origin, index);
      there[index] = true;
    }
    if (!made.cuts.emplace(fusions, std::move(there)).second)
      bad_input("{}: \"cuts\": one is there twice", origin);
  }
  if (made.cuts.empty()) bad_input("{}: \"cuts\" is empty", origin);
  check_prefixes(made, origin);
  return made;
} catch (const Json::exception& error) {
  bad_input("{}: no space of a step: {}", origin, error.what());
}

}  // namespace ac::study
