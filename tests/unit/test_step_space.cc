// The schedules of a step: every point is a step that computes everything once, and bounds hold.
#include "tune/step_space.h"

#include <doctest/doctest.h>

#include "step_fixture.h"

using namespace ac;
using namespace ac::tune;

namespace {

struct SpaceFixture : test::StepFixture {
  SpaceFixture() { complete(regions, plans); }

  std::map<std::string, std::string> selected(const StepSpace& space, int point) const {
    std::map<std::string, std::string> selected;
    for (const Scheduled& scheduled : space.schedule(point)) {
      const Space& parts = of(scheduled.part->space);
      selected[parts.signature] =
          scheduled.candidate < 0
              ? ""
              : parts.candidates[static_cast<std::size_t>(scheduled.candidate)].id;
    }
    return selected;
  }
};

}  // namespace

TEST_CASE("step space: every schedule computes each node once, and is found again") {
  const SpaceFixture f;
  const StepSpace space(f.regions, f.plans, f.first(), {.plans = 2, .max_points = 300});
  const auto points = space.points().all(300);
  REQUIRE(points);
  CHECK(points->size() > 100);
  std::set<std::string> ids;
  std::set<std::size_t> launches;  // kernels of a schedule
  int found = 0;
  for (const int point : *points) {
    CHECK(ids.insert(space.points().id(point)).second);
    CHECK(space.points().find(space.points().id(point)) == point);
    std::map<NodeId, int> computed;
    int choosing = 0;
    const std::vector<Scheduled> schedule = space.schedule(point);
    launches.insert(schedule.size());
    for (const Scheduled& scheduled : schedule) {
      const auto& wanted = scheduled.part->wanted;
      choosing += !wanted || wanted->argmax;
      if (!wanted) continue;
      for (const NodeId id : wanted->region.nodes)
        if (is_compute(f.regions.step.graph[id])) ++computed[id];
    }
    CHECK(choosing == 1);
    for (std::size_t i = 0; i < f.regions.step.graph.nodes.size(); ++i)
      if (is_compute(f.regions.step.graph.nodes[i])) REQUIRE(computed[static_cast<NodeId>(i)] == 1);
    const auto selected = f.selected(space, point);
    const auto again = space.find(selected);
    if (again && f.selected(space, *again) == selected) ++found;
  }
  CHECK(launches.size() > 2);  // some fuse more than others
  CHECK(found == static_cast<int>(points->size()));
}

TEST_CASE("step space: what is drawn of a space too large to list is found again") {
  const SpaceFixture f;
  const StepSpace space(f.regions, f.plans, f.first(), {.plans = 2, .max_points = 0});
  search::Random random(1);
  std::set<int> points;
  for (int i = 0; i < 300; ++i) points.insert(space.points().draw(random));
  REQUIRE(points.size() > 250);
  int found = 0;
  for (const int point : points) {
    const auto selected = f.selected(space, point);
    const auto again = space.find(selected);
    found += again && f.selected(space, *again) == selected;
  }
  CHECK(found == static_cast<int>(points.size()));
}

TEST_CASE("step space: points of a table all have the same sites") {
  const SpaceFixture f;
  const StepSpace space(f.regions, f.plans, f.first(), {.plans = 3, .max_points = 64});
  std::vector<search::Point> listed;
  const auto points = space.points().all(64);
  REQUIRE(points);
  for (const int point : *points) listed.push_back(space.listed(point));
  for (const search::Point& point : listed) {
    REQUIRE(point.parts.size() == listed[0].parts.size());
    for (std::size_t i = 0; i < point.parts.size(); ++i)
      CHECK(point.parts[i].site == listed[0].parts[i].site);
    CHECK(point.predicted > 0);
  }
  const search::ListedSpace as_listed(listed);
  CHECK(as_listed.size() == points->size());
  CHECK(!as_listed.neighbours(0).empty());
}

TEST_CASE("step space: the bound holds, and more room is used") {
  const SpaceFixture f;
  std::size_t before = 0;
  for (const std::uint64_t bound : {1u, 2u, 10u, 100u, 1000u}) {
    const StepSpace space(f.regions, f.plans, f.first(), {.plans = 6, .max_points = bound});
    const auto points = space.points().all(bound);
    REQUIRE(points);
    CHECK(points->size() >= before);
    CHECK(points->size() * 2 >= bound);
    before = points->size();
    CHECK_FALSE(space.points().all(points->size() - 1));
  }
}

TEST_CASE("step space: what is no schedule of it is not found") {
  const SpaceFixture f;
  const StepSpace space(f.regions, f.plans, f.first(), {.plans = 2, .max_points = 0});
  auto selected = f.selected(space, space.points().start());
  REQUIRE(space.find(selected) == space.points().start());
  CHECK_FALSE(space.find({}));
  auto with_another = selected;
  with_another["a region of another model"] = "gemv/256";
  CHECK_FALSE(space.find(with_another));
  selected.begin()->second = "no such plan";
  CHECK_FALSE(space.find(selected));
}
