#include "study/answers.h"

#include "base/error.h"

namespace ac::study {
namespace {

// With the same sites as all others.
search::Point listed(const TimedTable& table, std::size_t index) {
  search::Point point = table.points[index].point;
  if (!table.sites) return point;
  for (std::size_t i = 0; i < table.sites->sites.size(); ++i) {
    const search::Site& site = table.sites->sites[i];
    const int choice = table.sampled[index].schedule[i];
    search::SitePlan part{site.name, "absent", {}};
    if (choice >= 0) {
      part = site.choices[static_cast<std::size_t>(choice)].parts.at(0);
      part.site = site.name;
    }
    point.parts.push_back(std::move(part));
  }
  return point;
}

}  // namespace

Answers::Answers(const TimedTable& table, bool recorded_only) : table_(table) {
  if (table.sites && !recorded_only) {
    model_.emplace(table);
    if (const std::string why = model_->why_not(); !why.empty())
      bad_input(
          "{}: only the schedules that were timed are known, as {}. Search on the device (tune "
          "--space step), or among those that were timed (--recorded-only)",
          table.description, why);
    return;
  }
  std::vector<search::Point> points;
  for (std::size_t i = 0; i < table.points.size(); ++i) points.push_back(listed(table, i));
  listed_ = std::make_shared<search::ListedSpace>(std::move(points));
}

std::shared_ptr<const search::PointSpace> Answers::space() const {
  if (listed_) return listed_;
  return table_.sites->space();
}

search::PointOutcome Answers::outcome(const search::PointSpace& space, int point) const {
  if (listed_) return table_.points[static_cast<std::size_t>(point)].outcome();
  if (const tune::TimedPoint* timed = table_.find(space.id(point))) return timed->outcome();
  const auto& schedules = dynamic_cast<const search::ProductSpace&>(space);
  return {search::Verdict::measured, model_->microseconds(schedules.choices(point))};
}

}  // namespace ac::study
