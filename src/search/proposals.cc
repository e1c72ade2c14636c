#include "search/proposals.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace ac::search {
namespace {

constexpr std::string_view kFamily = "family";

using Fields = std::map<std::pair<std::string, std::string>, std::string>;  // by site and field

Fields fields_of(const PointSpace& space, int point) {
  Fields fields;
  for (const SitePlan& part : space.parts(point)) {
    fields[{part.site, std::string(kFamily)}] = part.family;
    for (const Field& field : part.fields) fields[{part.site, field.name}] = value_of(field);
  }
  return fields;
}

}  // namespace

std::string value_of(const Field& field) {
  if (const auto* number = std::get_if<std::int64_t>(&field.value))
    return fmt::format("{}", *number);
  return std::get<std::string>(field.value);
}

std::string to_string(const Change& change) {
  return fmt::format("{}{}{}={}", change.site, change.site.empty() ? "" : ": ", change.field,
                     change.value);
}

std::vector<Change> changes(const PointSpace& space, int from, int to) {
  const Fields before = fields_of(space, from);
  std::vector<Change> made;
  for (const auto& [name, value] : fields_of(space, to)) {
    const auto old = before.find(name);
    if (old == before.end() || old->second != value)
      made.push_back({name.first, name.second, value});
  }
  return made;
}

std::optional<int> changed(const PointSpace& space, int from, const Change& change,
                           const std::set<int>& avoided) {
  std::optional<int> best;
  std::tuple<bool, std::size_t, double> least;
  for (const int to : space.neighbours(from)) {
    const std::vector<Change> made = changes(space, from, to);
    if (std::ranges::find(made, change) == made.end()) continue;
    const std::tuple differs(avoided.contains(to), made.size(), space.predicted(to));
    if (!best || differs < least) best = to, least = differs;
  }
  return best;
}

bool has_value(const PointSpace& space, const Change& change) {
  return space.has_plan([&](const SitePlan& plan) {
    if (plan.site != change.site) return false;
    if (change.field == kFamily) return plan.family == change.value;
    return std::ranges::any_of(plan.fields, [&](const Field& field) {
      return field.name == change.field && value_of(field) == change.value;
    });
  });
}

std::vector<int> RandomProposer::propose(const Situation& situation) {
  std::vector<int> points = situation.space.neighbours(situation.from);
  std::erase_if(points, [&](int point) {
    return std::ranges::find(situation.visits, point, &Visit::point) != situation.visits.end();
  });
  random_.shuffle(points);
  points.resize(std::min(points.size(), situation.wanted));
  return points;
}

ProposedSearch::ProposedSearch(std::unique_ptr<Strategy> strategy, const PointSpace& space,
                               Proposer& proposer, const ProposalOptions& options)
    : strategy_(std::move(strategy)), space_(space), proposer_(proposer), options_(options) {}

std::optional<int> ProposedSearch::from_strategy() {
  if (!asked_) asked_ = strategy_->propose();
  return asked_;
}

// The point that the strategy changes now, or the best.
int ProposedSearch::origin() const {
  if (const std::optional<int> of = strategy_->changes_now()) return *of;
  const auto cost = [](const Visit& visit) {
    return visit.outcome.ok() ? visit.outcome.microseconds
                              : std::numeric_limits<double>::infinity();
  };
  return std::ranges::min_element(visits_, {}, cost)->point;
}

std::optional<int> ProposedSearch::from_proposer() {
  if (visits_.empty()) return std::nullopt;  // there is nothing to change
  for (;;) {
    while (next_ < proposed_.size()) {
      const int point = proposed_[next_++];
      if (!is_tried(point)) return point;
    }
    if (calls_ == options_.calls || !from_strategy()) return std::nullopt;
    ++calls_, next_ = 0;
    proposed_from_ = origin();
    Situation now{space_, visits_, proposed_from_, options_.wanted};
    if (options_.measure) now.measured = options_.measure(proposed_from_);
    proposed_ = proposer_.propose(now);
    strategy_->recommend({proposed_, {}});
    if (std::ranges::all_of(proposed_, [&](int point) { return is_tried(point); }))
      return std::nullopt;  // until the strategy has tried something else
  }
}

std::optional<int> ProposedSearch::propose() {
  if (proposer_is_due_)
    if (const std::optional<int> found = from_proposer()) {
      under_ = proposed_from_;
      return found;
    }
  const std::optional<int> found = from_strategy();
  under_ = visits_.empty() ? -1 : origin();
  return found;
}

void ProposedSearch::hear(int point, const PointOutcome& outcome) {
  const bool was_proposed = next_ > 0 && next_ <= proposed_.size() && proposed_[next_ - 1] == point;
  proposer_is_due_ = !was_proposed;
  outcomes_[point] = outcome;
  visits_.push_back({point, under_, outcome});
  strategy_->hear(point, outcome);
  if (asked_ == point) asked_.reset();
}

}  // namespace ac::search
