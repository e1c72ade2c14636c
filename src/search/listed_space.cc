#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "search/point_space.h"

namespace ac::search {
namespace {

constexpr int kLengthDraws = 300;  // that the length of a site is taken from

double place_of(std::int64_t value) {
  const double magnitude = std::log2(1.0 + std::abs(static_cast<double>(value)));
  return value < 0 ? -magnitude : magnitude;
}

}  // namespace

ListedSpace::ListedSpace(std::vector<Point> points) : points_(std::move(points)) {
  if (points_.empty()) bad_input("a space to search has no point");
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!by_id_.emplace(points_[i].id, static_cast<int>(i)).second)
      bad_input("a space to search has two points with the id \"{}\"", points_[i].id);
    if (points_[i].predicted < get(start_).predicted) start_ = static_cast<int>(i);
  }
  find_traits();
  find_lengths();
  neighbours_ = std::make_unique<Neighbours[]>(points_.size());
}

const std::vector<int>& ListedSpace::neighbours(int point) const {
  Neighbours& of = neighbours_[static_cast<std::size_t>(point)];
  std::call_once(of.found, [&] { of.points = find_neighbours(point); });
  return of.points;
}

std::optional<int> ListedSpace::find(const std::string& id) const {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return std::nullopt;
  return known->second;
}

// Codes are in the order of the values, so that they depend on no order of points.
void ListedSpace::find_traits() {
  using Value = std::variant<std::int64_t, std::string>;
  using Name = std::pair<std::size_t, std::string>;  // site and field; the family has none
  std::map<Name, std::map<Value, int>> values;
  const auto each = [](const Point& point, const auto& see) {
    for (std::size_t site = 0; site < point.parts.size(); ++site) {
      const SitePlan& part = point.parts[site];
      see(Name(site, ""), Value(part.family));
      for (const Field& field : part.fields) see(Name(site, field.name), field.value);
    }
  };
  for (const Point& point : points_)
    each(point, [&](const Name& name, const Value& value) { values[name][value] = 0; });
  std::map<Name, std::size_t> index;
  for (auto& [name, codes] : values) {
    index[name] = traits_.size();
    Trait trait{name.first, true, {}};
    for (auto& [value, code] : codes) {
      code = static_cast<int>(trait.places.size());
      const auto* number = std::get_if<std::int64_t>(&value);
      trait.is_number &= number != nullptr;
      trait.places.push_back(number ? place_of(*number) : 0);
    }
    const double low = *std::min_element(trait.places.begin(), trait.places.end());
    const double high = *std::max_element(trait.places.begin(), trait.places.end());
    for (double& place : trait.places) place = high > low ? (place - low) / (high - low) : 0;
    traits_.push_back(std::move(trait));
  }
  codes_.assign(points_.size() * traits_.size(), kAbsent);
  for (std::size_t i = 0; i < points_.size(); ++i)
    each(points_[i], [&](const Name& name, const Value& value) {
      codes_[i * traits_.size() + index.at(name)] = values.at(name).at(value);
    });
}

bool ListedSpace::has_plan(const std::function<bool(const SitePlan&)>& is_so) const {
  return std::ranges::any_of(
      points_, [&](const Point& point) { return std::ranges::any_of(point.parts, is_so); });
}

double ListedSpace::difference(std::size_t trait, int a, int b) const {
  if (a == b) return 0;
  if (a == kAbsent || b == kAbsent || !traits_[trait].is_number) return 1;
  const std::vector<double>& places = traits_[trait].places;
  const double apart = places[static_cast<std::size_t>(a)] - places[static_cast<std::size_t>(b)];
  return apart * apart;
}

double ListedSpace::distance(const int* a, const int* b) const {
  double sum = 0;
  for (std::size_t t = 0; t < traits_.size(); ++t) sum += difference(t, a[t], b[t]);
  return sum;
}

void ListedSpace::find_lengths() {
  lengths_.assign(points_[0].parts.size(), 0);
  Random random(1);
  for (int draw = 0; draw < kLengthDraws; ++draw) {
    const int* a = traits(static_cast<int>(random.index(points_.size())));
    const int* b = traits(static_cast<int>(random.index(points_.size())));
    for (std::size_t t = 0; t < traits_.size(); ++t)
      lengths_[traits_[t].site] += difference(t, a[t], b[t]) / kLengthDraws;
  }
  for (double& length : lengths_) length = std::max(length, 1e-6);
}

double ListedSpace::likeness(int a, int b) const {
  const int *left = traits(a), *right = traits(b);
  double sum = 0;
  std::size_t t = 0;
  for (std::size_t site = 0; site < lengths_.size(); ++site) {
    double apart = 0;
    for (; t < traits_.size() && traits_[t].site == site; ++t)
      apart += difference(t, left[t], right[t]);
    sum += std::exp(-apart / lengths_[site]);
  }
  return lengths_.empty() ? 1 : sum / static_cast<double>(lengths_.size());
}

std::vector<int> ListedSpace::find_neighbours(int point) const {
  struct Nearest {
    int point = -1;
    int changed = 0;  // traits
    double distance = 0;
  };
  const int* from = traits(point);
  std::map<std::pair<std::size_t, int>, Nearest> nearest;  // by trait and its new value
  for (std::size_t j = 0; j < points_.size(); ++j) {
    const int* to = traits(static_cast<int>(j));
    Nearest found{static_cast<int>(j), 0, distance(from, to)};
    for (std::size_t t = 0; t < traits_.size(); ++t) found.changed += from[t] != to[t];
    for (std::size_t t = 0; t < traits_.size(); ++t) {
      if (from[t] == to[t] || to[t] == kAbsent) continue;
      const auto [at, is_new] = nearest.try_emplace({t, to[t]}, found);
      Nearest& best = at->second;
      const auto key = [&](const Nearest& n) {
        return std::tuple(n.changed, n.distance, get(n.point).predicted, n.point);
      };
      if (!is_new && key(found) < key(best)) best = found;
    }
  }
  std::vector<int> neighbours;
  for (const auto& [trait, best] : nearest) neighbours.push_back(best.point);
  std::sort(neighbours.begin(), neighbours.end());
  neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
  return neighbours;
}

int ListedSpace::cross(int mother, int father, Random& random) const {
  std::vector<int> wanted(traits_.size());
  for (std::size_t t = 0; t < traits_.size(); ++t)
    wanted[t] = traits(random.below(2) == 0 ? mother : father)[t];
  int best = 0;
  double nearest = distance(wanted.data(), traits(0));
  for (std::size_t i = 1; i < points_.size(); ++i) {
    const double apart = distance(wanted.data(), traits(static_cast<int>(i)));
    if (apart < nearest) best = static_cast<int>(i), nearest = apart;
  }
  return best;
}

}  // namespace ac::search
