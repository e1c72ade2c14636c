#include "tune/step_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "tune/workshop.h"

namespace ac::tune {
namespace {

// Equal for neighbourhoods of different layers.
std::string identity(const Neighbourhood& around) {
  std::string text(to_string(around.kind));
  for (const FusionOption& option : around.options) {
    text += fmt::format("; {}{}", option.text, option.refused ? " refused" : "");
    for (const Part& part : option.parts) text += fmt::format(" {}", part.space);
  }
  return text;
}

// A name of a choice, which ids of schedules are made of.
std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

}  // namespace

void complete(const Regions& regions, Plans& plans) {
  const UseDef uses(regions.step);
  const Graph& graph = regions.step.graph;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_compute(graph.nodes[i])) continue;
    auto made = make_region(uses, {static_cast<NodeId>(i)});
    find_or_plan(regions.step, Wanted{std::get<Region>(std::move(made))}, plans);
  }
  find_or_plan(regions.step, std::nullopt, plans);
}

StepSpace::StepSpace(const Regions& regions, const Plans& plans, const PartChoices& choices,
                     const StepSpaceOptions& options)
    : regions_(regions), plans_(plans), covers_(regions, plans) {
  find_alike();
  find_spaces();
  bound(options.max_points, options.plans);
  std::vector<search::Site> sites;
  for (std::size_t i = 0; i < alike_.size(); ++i) sites.push_back(fusion_site(i));
  for (const auto& [space, part] : parts_) {
    site_of_[space] = sites.size();
    sites.push_back(part_site(space, choices));
  }
  points_ = std::make_unique<search::ProductSpace>(std::move(sites));
}

void StepSpace::find_alike() {
  const std::vector<Neighbourhood>& all = plans_.neighbourhoods;
  alike_of_.assign(all.size(), -1);
  for (const Neighbourhood::Kind kind : kClaimOrder) {
    std::map<std::string, std::size_t> known;
    for (std::size_t n = 0; n < all.size(); ++n) {
      if (all[n].kind != kind) continue;
      std::vector<std::size_t> options;
      for (std::size_t o = 0; o < all[n].options.size(); ++o)
        if (!all[n].options[o].refused) options.push_back(o);
      if (options.empty()) continue;
      const auto [at, is_new] = known.emplace(identity(all[n]), alike_.size());
      if (is_new) {
        const auto cost = [&](std::size_t option) {
          const auto predicted = all[n].options[option].microseconds;
          return predicted ? *predicted : std::numeric_limits<double>::infinity();
        };
        std::stable_sort(options.begin(), options.end(),
                         [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
        const int same = ++names_[std::string(to_string(kind))];
        alike_.push_back(
            {kind,
             same == 1 ? std::string(to_string(kind)) : fmt::format("{}.{}", to_string(kind), same),
             {},
             std::move(options),
             0});
      }
      Alike& alike = alike_[at->second];
      alike.members.push_back(n);
      alike.microseconds += all[n].options[alike.options[0]].microseconds.value_or(0);
      alike_of_[n] = static_cast<int>(at->second);
    }
  }
}

// Of all options, and of the cut that is best predicted: what else a cut has is what is left over
// where neighbourhoods meet.
void StepSpace::find_spaces() {
  std::map<Neighbourhood::Kind, std::map<int, double>> uses;
  for (const Alike& alike : alike_) {
    const Neighbourhood& around = plans_.neighbourhoods[alike.members[0]];
    std::map<int, double> most;
    for (const std::size_t option : alike.options) {
      std::map<int, double> count;
      for (const Part& part : around.options[option].parts) {
        parts_.try_emplace(part.space, CoverPart{part.wanted, part.space});
        ++count[part.space];
      }
      for (const auto& [space, n] : count) most[space] = std::max(most[space], n);
    }
    for (const auto& [space, n] : most)
      uses[alike.kind][space] += n * static_cast<double>(alike.members.size());
  }
  std::map<int, double> whole;
  for (const CoverPart* part : cut(std::vector<int>(alike_.size(), 0)).parts) {
    parts_.try_emplace(part->space, *part);
    ++whole[part->space];
  }
  for (const auto& [space, part] : parts_) {
    uses_[space] = std::max(1.0, whole[space]);
    for (auto& [kind, count] : uses) uses_[space] = std::max(uses_[space], count[space]);
    limit_[space] = std::numeric_limits<std::size_t>::max();
  }
}

// With a bound, every choice begins alone; those of the sites that a step spends most time in get
// others first, in turn, as long as there is room and they make further schedules.
void StepSpace::bound(std::uint64_t max_points, std::size_t plans) {
  for (auto& [space, limit] : limit_) limit = plans;
  if (max_points == 0) return;
  struct Growing {
    double microseconds;
    std::function<bool(bool more)> grow;  // by one, or back; false if there is nothing left
  };
  std::vector<Growing> all;
  std::vector<std::vector<std::size_t>> options;
  for (Alike& alike : alike_) options.push_back(std::exchange(alike.options, {alike.options[0]}));
  for (std::size_t i = 0; i < alike_.size(); ++i)
    all.push_back({alike_[i].microseconds, [this, i, &options](bool more) {
                     std::vector<std::size_t>& now = alike_[i].options;
                     if (!more) return now.pop_back(), true;
                     if (now.size() == options[i].size()) return false;
                     return now.push_back(options[i][now.size()]), true;
                   }});
  for (auto& [space, limit] : limit_) {
    const std::size_t most =
        std::min(plans, this->space(space).candidates.size() + (plans_.device.sm == 0 ? 1 : 0));
    limit = 1;
    all.push_back({uses_.at(space) * best_of(parts_.at(space)), [&limit = limit, most](bool more) {
                     if (!more) return --limit, true;
                     if (limit >= most) return false;
                     return ++limit, true;
                   }});
  }
  std::stable_sort(all.begin(), all.end(), [](const Growing& a, const Growing& b) {
    return a.microseconds > b.microseconds;
  });
  std::uint64_t points = count(max_points);
  for (bool grew = true; grew;) {
    grew = false;
    for (const Growing& site : all) {
      if (!site.grow(true)) continue;
      const std::uint64_t more = count(max_points);
      if (more > points && more <= max_points)
        points = more, grew = true;
      else
        site.grow(false);
    }
  }
  // What is in no cut needs no choice.
  std::set<int> reached;
  count(max_points, &reached);
  std::erase_if(parts_, [&](const auto& entry) { return reached.count(entry.first) == 0; });
}

// Schedules, or more than enough.
std::uint64_t StepSpace::count(std::uint64_t enough, std::set<int>* reached) const {
  std::uint64_t total = 0;
  each_cut([&](const std::vector<int>& fusions) {
    std::uint64_t product = 1;
    if (reached) reached->insert(cut(fusions).spaces.begin(), cut(fusions).spaces.end());
    for (const int space : cut(fusions).spaces)
      if (const auto limit = limit_.find(space); limit != limit_.end() && product <= enough)
        product *= std::max<std::uint64_t>(1, limit->second);
    total += product;
    return total <= enough;
  });
  return total;
}

// Until `see` says no. An option of a site that `may` says no to is left out.
void StepSpace::each_cut(const std::function<bool(const std::vector<int>&)>& see,
                         const std::function<bool(std::size_t, int)>& may) const {
  std::vector<int> fusions(alike_.size(), -1);
  const std::function<bool(std::size_t)> descend = [&](std::size_t i) {
    if (i == alike_.size()) return see(fusions);
    if (!cut(fusions).claimed[i]) return descend(i + 1);
    for (int o = 0; o < static_cast<int>(alike_[i].options.size()); ++o) {
      if (may && !may(i, o)) continue;
      fusions[i] = o;
      if (!descend(i + 1)) return false;
    }
    fusions[i] = -1;
    return true;
  };
  descend(0);
}

const StepSpace::Cut& StepSpace::cut(const std::vector<int>& choices) const {
  std::vector<int> fusions(choices.begin(),
                           choices.begin() + static_cast<std::ptrdiff_t>(alike_.size()));
  for (int& fusion : fusions) fusion = std::max(fusion, 0);
  const auto [at, is_new] = cuts_.try_emplace(fusions);
  Cut& cut = at->second;
  if (!is_new) return cut;
  cut.claimed.resize(alike_.size());
  const auto take = [&](std::size_t n) -> std::optional<std::size_t> {
    if (alike_of_[n] < 0) return std::nullopt;
    const auto i = static_cast<std::size_t>(alike_of_[n]);
    cut.claimed[i] = true;
    return alike_[i].options[static_cast<std::size_t>(fusions[i])];
  };
  const auto cost = [&](int index) -> std::optional<double> {
    if (index < 0 || space(index).candidates.empty()) return std::nullopt;
    return space(index).candidates[0].cost.microseconds;
  };
  const FusionTaker taker = take;
  cut.parts = covers_.choose(cost, &taker);
  static const CoverPart choosing;
  if (std::ranges::none_of(cut.parts, [](const CoverPart* part) { return chooses_token(*part); }))
    cut.parts.push_back(&choosing);
  for (const CoverPart*& part : cut.parts) {
    part = with_space(part);
    cut.spaces.insert(part->space);
  }
  return cut;
}

const CoverPart* StepSpace::with_space(const CoverPart* part) const {
  if (part->space >= 0) return part;
  const auto [at, is_new] = with_space_.try_emplace(part, *part);
  if (is_new) at->second.space = find_space(plans_, part->wanted).value_or(-1);
  AC_ASSERT(at->second.space >= 0);  // the plans are complete
  return &at->second;
}

std::optional<std::vector<StepSpace::Fused>> StepSpace::all_fused(std::size_t limit) const {
  std::vector<Fused> all;
  each_cut([&](const std::vector<int>& fusions) {
    Fused& fused = all.emplace_back(Fused{fusions, {}});
    for (const int space : cut(fusions).spaces)
      if (const auto site = site_of_.find(space); site != site_of_.end())
        fused.there.push_back(site->second);
    return all.size() <= limit;
  });
  if (all.size() > limit) return std::nullopt;
  return all;
}

search::Site StepSpace::fusion_site(std::size_t i) const {
  const Alike& alike = alike_[i];
  search::Site site;
  site.name = alike.name;
  site.uses = static_cast<double>(alike.members.size());
  for (const std::size_t o : alike.options) {
    const FusionOption& option = plans_.neighbourhoods[alike.members[0]].options[o];
    const std::string text = without_spaces(option.text);
    // Its parts have the time.
    site.choices.push_back(
        {text, {{"", std::string(to_string(option.fusion)), {{"kernels", text}}}}, 0});
  }
  site.only_if = [this, i](const std::vector<int>& choices) {
    std::vector<int> before(choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(i));
    before.resize(alike_.size(), -1);
    return static_cast<bool>(cut(before).claimed[i]);
  };
  return site;
}

search::Site StepSpace::part_site(int index, const PartChoices& choices) {
  const CoverPart& part = parts_.at(index);
  search::Site site;
  site.name = name_of(part);
  site.uses = uses_.at(index);
  candidates_[index] = choices(part, limit_.at(index));
  AC_ASSERT(!candidates_[index].empty());
  for (const int candidate : candidates_[index]) {
    if (candidate < 0) {
      const double cost = part.wanted ? fallback_cost(regions_, plans_, part.wanted->region)
                                      : plans_.device.launch * 1e6;
      site.choices.push_back({"fallback", {{"", "fallback", {}}}, cost});
      continue;
    }
    const Candidate& of = space(index).candidates[static_cast<std::size_t>(candidate)];
    site.choices.push_back(point_of(of));
  }
  site.only_if = [this, index](const std::vector<int>& chosen) {
    return cut(chosen).spaces.count(index) > 0;
  };
  return site;
}

// Of several with the same ops, all but the first get a number.
std::string StepSpace::name_of(const CoverPart& part) {
  Subject subject;
  subject.wanted = part.wanted;
  const std::string name = subject.description();
  const int same = ++names_[name];
  return same == 1 ? name : fmt::format("{}.{}", name, same);
}

double StepSpace::best_of(const CoverPart& part) const {
  const std::vector<Candidate>& candidates = space(part.space).candidates;
  return candidates.empty() ? 0 : candidates[0].cost.microseconds;
}

const std::string& StepSpace::site_of(const CoverPart& part) const {
  return points_->sites()[site_of_.at(part.space)].name;
}

std::vector<Scheduled> StepSpace::schedule(int point) const {
  const std::vector<int>& choices = points_->choices(point);
  std::vector<Scheduled> parts;
  for (const CoverPart* part : cut(choices).parts) {
    const auto site = site_of_.find(part->space);
    if (site == site_of_.end()) {
      // Left over where neighbourhoods meet in a way that is not among the likely ones.
      parts.push_back({part, choices_of(part->space).front()});
      continue;
    }
    const auto choice = static_cast<std::size_t>(choices[site->second]);
    parts.push_back({part, candidates_.at(part->space)[choice]});
  }
  return parts;
}

std::vector<std::size_t> StepSpace::fusions(int point) const {
  const std::vector<int>& choices = points_->choices(point);
  std::vector<std::size_t> fusions;
  for (const int alike : alike_of_) {
    if (alike < 0) {
      fusions.push_back(0);  // it has no option that could be taken
      continue;
    }
    const auto i = static_cast<std::size_t>(alike);
    fusions.push_back(alike_[i].options[static_cast<std::size_t>(std::max(choices[i], 0))]);
  }
  return fusions;
}

// Options that no cut of these parts has are left out, so that few cuts are looked at.
std::optional<int> StepSpace::find(const std::map<std::string, std::string>& selected) const {
  const auto may = [&](std::size_t i, int option) {
    const Neighbourhood& around = plans_.neighbourhoods[alike_[i].members[0]];
    const std::size_t o = alike_[i].options[static_cast<std::size_t>(option)];
    return std::ranges::all_of(around.options[o].parts, [&](const Part& part) {
      return is_open(around, part) || may_be_among(selected, part);
    });
  };
  std::optional<int> found;
  each_cut(
      [&](const std::vector<int>& fusions) {
        found = with_plans(fusions, selected);
        return !found;
      },
      may);
  return found;
}

// As it is, or taken apart for the order's sake.
bool StepSpace::may_be_among(const std::map<std::string, std::string>& selected,
                             const Part& part) const {
  if (selected.count(space(part.space).signature) > 0) return true;
  return part.wanted && std::ranges::all_of(part.wanted->region.nodes, [&](NodeId id) {
           return !is_compute(regions_.step.graph[id]) ||
                  selected.count(space(with_space(covers_.single(id))->space).signature) > 0;
         });
}

// The point of this cut with these plans, if they are of its parts and of no others.
std::optional<int> StepSpace::with_plans(const std::vector<int>& fusions,
                                         const std::map<std::string, std::string>& plans) const {
  std::vector<int> choices = fusions;
  choices.resize(points_->sites().size(), -1);
  if (cut(fusions).spaces.size() != plans.size()) return std::nullopt;
  for (const int index : cut(fusions).spaces) {
    const auto wanted = plans.find(space(index).signature);
    if (wanted == plans.end()) return std::nullopt;
    const std::vector<int> candidates = choices_of(index);
    const auto at = std::ranges::find_if(candidates, [&](int candidate) {
      return wanted->second ==
             (candidate < 0 ? "" : space(index).candidates[static_cast<std::size_t>(candidate)].id);
    });
    if (at == candidates.end()) return std::nullopt;
    if (const auto site = site_of_.find(index); site != site_of_.end())
      choices[site->second] = static_cast<int>(at - candidates.begin());
  }
  return points_->point(std::move(choices));
}

std::optional<StepSpace::Choice> StepSpace::find_candidate(const std::string& signature,
                                                           const std::string& id) const {
  for (const auto& [index, site] : site_of_) {
    if (space(index).signature != signature) continue;
    const std::vector<int>& candidates = candidates_.at(index);
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i] >= 0 &&
          space(index).candidates[static_cast<std::size_t>(candidates[i])].id == id)
        return Choice{site, static_cast<int>(i)};
  }
  return std::nullopt;
}

std::optional<StepSpace::Choice> StepSpace::find_fusion(std::size_t neighbourhood,
                                                        std::size_t option) const {
  if (neighbourhood >= alike_of_.size() || alike_of_[neighbourhood] < 0) return std::nullopt;
  const auto site = static_cast<std::size_t>(alike_of_[neighbourhood]);
  const std::vector<std::size_t>& options = alike_[site].options;
  const auto found = std::ranges::find(options, option);
  if (found == options.end()) return std::nullopt;
  return Choice{site, static_cast<int>(found - options.begin())};
}

double StepSpace::microseconds(std::size_t index) const {
  if (index < alike_.size()) return alike_[index].microseconds;
  const search::Site& site = points_->sites()[index];
  const auto best = std::ranges::min_element(site.choices, {}, &search::Point::predicted);
  return site.uses * best->predicted;
}

search::Point StepSpace::listed(int point) const {
  search::Point listed{points_->id(point), {}, points_->predicted(point)};
  for (std::size_t i = 0; i < points_->sites().size(); ++i) {
    const search::Site& site = points_->sites()[i];
    const int choice = points_->choices(point)[i];
    search::SitePlan part{site.name, "absent", {}};
    if (choice >= 0) {
      part = site.choices[static_cast<std::size_t>(choice)].parts.at(0);
      part.site = site.name;
    }
    listed.parts.push_back(std::move(part));
  }
  return listed;
}

std::vector<const CoverPart*> StepSpace::likely_parts(int point) const {
  std::set<const CoverPart*> parts;
  const auto add = [&](const std::vector<int>& choices) {
    parts.insert(cut(choices).parts.begin(), cut(choices).parts.end());
  };
  add(points_->choices(point));
  for (std::size_t i = 0; i < alike_.size(); ++i)
    for (std::size_t o = 0; o < alike_[i].options.size(); ++o) {
      std::vector<int> other = points_->choices(point);
      other[i] = static_cast<int>(o);
      add(other);
    }
  return {parts.begin(), parts.end()};
}

std::vector<const CoverPart*> StepSpace::met_parts() const {
  std::set<const CoverPart*> parts;
  for (const auto& [fusions, cut] : cuts_) parts.insert(cut.parts.begin(), cut.parts.end());
  return {parts.begin(), parts.end()};
}

std::vector<int> StepSpace::choices_of(int index) const {
  const auto known = candidates_.find(index);
  if (known != candidates_.end()) return known->second;
  return {space(index).candidates.empty() ? -1 : 0};
}

}  // namespace ac::tune
