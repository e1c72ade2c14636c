#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "search/point_space.h"

namespace ac::search {

ProductSpace::ProductSpace(std::vector<Site> sites) : sites_(std::move(sites)) {
  if (sites_.empty()) bad_input("a space of schedules has no site");
  std::vector<double> weights;
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const Site& site = sites_[i];
    if (site.choices.empty()) bad_input("site \"{}\" has no choice", site.name);
    const std::uint64_t choices = site.choices.size();
    size_ = size_ > std::numeric_limits<std::uint64_t>::max() / choices
                ? std::numeric_limits<std::uint64_t>::max()
                : size_ * choices;
    spaces_.emplace_back(site.choices);
    weights.push_back(site.uses * std::max(spaces_[i].predicted(spaces_[i].start()), 1e-3));
  }
  double total = 0;
  for (double& weight : weights) total += weight *= weight;
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const int choices = static_cast<int>(sites_[i].choices.size());
    std::vector<double>& of = likeness_.emplace_back();
    for (int a = 0; a < choices; ++a)
      for (int b = 0; b < choices; ++b)
        of.push_back(weights[i] / total * (a == b ? 1 : spaces_[i].likeness(a, b)));
  }
}

bool ProductSpace::is_there(std::size_t site, const std::vector<int>& choices) const {
  return !sites_[site].only_if || sites_[site].only_if(choices);
}

// One spelling of each schedule: what is not there has no choice, what is there has one.
int ProductSpace::point(std::vector<int> choices) const {
  for (std::size_t i = 0; i < sites_.size(); ++i)
    if (!is_there(i, choices))
      choices[i] = -1;
    else if (choices[i] < 0)
      choices[i] = spaces_[i].start();
  const auto [at, is_new] = known_.emplace(choices, static_cast<int>(schedules_.size()));
  if (is_new) schedules_.push_back(std::move(choices));
  return at->second;
}

int ProductSpace::at(std::uint64_t index) const {
  std::vector<int> choices;
  for (const Site& site : sites_) {
    choices.push_back(static_cast<int>(index % site.choices.size()));
    index /= site.choices.size();
  }
  return point(std::move(choices));
}

int ProductSpace::draw(Random& random) const {
  std::vector<int> choices;
  for (const Site& site : sites_)
    choices.push_back(static_cast<int>(random.index(site.choices.size())));
  return point(std::move(choices));
}

std::optional<std::vector<int>> ProductSpace::all(std::size_t limit) const {
  std::vector<int> found, choices(sites_.size(), -1);
  const std::function<bool(std::size_t)> descend = [&](std::size_t site) {
    if (site == sites_.size()) {
      found.push_back(point(choices));
      return found.size() <= limit;
    }
    if (!is_there(site, choices)) return descend(site + 1);
    for (int choice = 0; choice < static_cast<int>(sites_[site].choices.size()); ++choice) {
      choices[site] = choice;
      if (!descend(site + 1)) return false;
    }
    choices[site] = -1;
    return true;
  };
  if (!descend(0)) return std::nullopt;
  return found;
}

std::string ProductSpace::id(int point) const {
  std::string text;
  for (std::size_t i = 0; i < sites_.size(); ++i)
    if (const int choice = choices(point)[i]; choice >= 0)
      text +=
          fmt::format("{}{}={}", text.empty() ? "" : " ", sites_[i].name, spaces_[i].id(choice));
  return text;
}

std::optional<int> ProductSpace::find(const std::string& id) const {
  std::vector<int> choices(sites_.size(), -1);
  std::size_t at = 0;
  while (at < id.size()) {
    const std::size_t end = std::min(id.find(' ', at), id.size());
    const std::string item = id.substr(at, end - at);
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const auto site = std::find_if(sites_.begin(), sites_.end(),
                                   [&](const Site& s) { return s.name == item.substr(0, equals); });
    if (site == sites_.end()) return std::nullopt;
    const auto index = static_cast<std::size_t>(site - sites_.begin());
    const std::optional<int> choice = spaces_[index].find(item.substr(equals + 1));
    if (!choice) return std::nullopt;
    choices[index] = *choice;
    at = end + 1;
  }
  const int found = point(choices);
  return this->id(found) == id ? std::optional(found) : std::nullopt;
}

double ProductSpace::predicted(int point) const {
  double sum = 0;
  for (std::size_t i = 0; i < sites_.size(); ++i)
    if (const int choice = choices(point)[i]; choice >= 0)
      sum += sites_[i].uses * spaces_[i].predicted(choice);
  return sum;
}

std::vector<SitePlan> ProductSpace::parts(int point) const {
  std::vector<SitePlan> parts;
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const int choice = choices(point)[i];
    if (choice < 0) continue;
    parts.push_back(spaces_[i].parts(choice).at(0));
    parts.back().site = sites_[i].name;
  }
  return parts;
}

bool ProductSpace::has_plan(const std::function<bool(const SitePlan&)>& is_so) const {
  return std::ranges::any_of(sites_, [&](const Site& site) {
    return std::ranges::any_of(site.choices, [&](const Point& choice) {
      SitePlan plan = choice.parts.at(0);
      plan.site = site.name;
      return is_so(plan);
    });
  });
}

std::vector<double> ProductSpace::predicted_parts(int point) const {
  std::vector<double> costs;
  for (std::size_t i = 0; i < sites_.size(); ++i)
    if (const int choice = choices(point)[i]; choice >= 0)
      costs.push_back(sites_[i].uses * spaces_[i].predicted(choice));
  return costs;
}

// Site by site; where other sites follow from one, each of its families with the best of those.
int ProductSpace::start() const {
  std::vector<int> best(sites_.size(), -1);
  for (std::size_t i = 0; i < sites_.size(); ++i)
    if (is_there(i, best)) best[i] = spaces_[i].start();
  int found = point(best);
  for (std::size_t i = 0; i < sites_.size(); ++i)
    for (int choice = 0; choice < static_cast<int>(sites_[i].choices.size()); ++choice) {
      if (choices(found)[i] < 0) break;
      std::vector<int> other = choices(found);
      other[i] = choice;
      const int moved = point(std::move(other));
      if (predicted(moved) < predicted(found)) found = moved;
    }
  return found;
}

const std::vector<int>& ProductSpace::neighbours(int from) const {
  const auto known = neighbours_.find(from);
  if (known != neighbours_.end()) return known->second;
  std::vector<int> found;
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const int choice = choices(from)[i];
    if (choice < 0) continue;
    for (const int other : spaces_[i].neighbours(choice)) {
      std::vector<int> moved = choices(from);
      moved[i] = other;
      found.push_back(point(std::move(moved)));
    }
  }
  return neighbours_[from] = std::move(found);
}

int ProductSpace::cross(int mother, int father, Random& random) const {
  std::vector<int> child;
  for (std::size_t i = 0; i < sites_.size(); ++i)
    child.push_back(choices(random.below(2) == 0 ? mother : father)[i]);
  return point(std::move(child));
}

double ProductSpace::likeness(int a, int b) const {
  const std::vector<int>&left = choices(a), &right = choices(b);
  double sum = 0;
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const std::size_t count = sites_[i].choices.size();
    if (left[i] >= 0 && right[i] >= 0)
      sum += likeness_[i][static_cast<std::size_t>(left[i]) * count +
                          static_cast<std::size_t>(right[i])];
    else if (left[i] == right[i])
      sum += likeness_[i][0];
  }
  return sum;
}

}  // namespace ac::search
