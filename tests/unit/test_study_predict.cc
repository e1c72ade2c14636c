// Tables with other predictions: those of the cost model as it is, and as if nobody had measured.
#include <doctest/doctest.h>

#include <cmath>

#include "capture/config.h"
#include "capture/native.h"
#include "expect_error.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "plan/cover.h"
#include "study/predict.h"
#include "tests/tools/source_folder.h"
#include "tune/workshop.h"

using namespace ac;
using namespace ac::study;

namespace {

const Graph& predicted_model() {
  static const Graph graph =
      normalise(build_decoder(read_config(test_data() / "configs/qwen3-1.7b.json"), "qwen3-1.7b"));
  return graph;
}

// Regions of its step, with candidates that "took" what is no prediction, and a plan that nobody
// knows.
const Recording& recorded_regions(std::int64_t tokens) {
  static std::map<std::int64_t, Recording> known;
  Recording& made = known[tokens];
  if (!made.tables.empty()) return made;
  made.header = {{"study", 1},  {"device", "D"},     {"toolkit", "T"},   {"model", "M"},
                 {"date", "d"}, {"target", "sm_90"}, {"tokens", tokens}, {"context", 64}};
  const StepGraph step = incrementalise(predicted_model());
  const Regions regions = analyse(tokens == 1 ? decode_instance(step) : prefill_instance(step));
  const Plans plans = plan(regions, device_info("sm_90"),
                           {.max_candidates = 40, .at = {.S = -1, .T = tokens, .P = 64}});
  std::set<int> seen;
  for (const CoverPart& part : parts_of_all_cuts(regions, plans)) {
    if (!part.wanted || !seen.insert(part.space).second) continue;
    const Space& space = plans.spaces[static_cast<std::size_t>(part.space)];
    if (space.candidates.empty()) continue;
    TimedTable table;
    table.region = static_cast<int>(made.tables.size());
    table.signature = space.signature, table.description = space.signature.substr(0, 20);
    table.uses = 3, table.fallback = {7};
    for (const Candidate& candidate : space.candidates) {
      tune::TimedPoint point;
      point.point = tune::point_of(candidate);
      point.point.predicted = 1e6;
      point.samples = {double(1 + table.points.size())};
      table.add(std::move(point));
    }
    made.tables.push_back(std::move(table));
  }
  tune::TimedPoint stranger;
  stranger.point = made.tables[0].points[0].point, stranger.point.id = "no plan of today";
  made.tables[0].add(stranger);
  return made;
}

Predicted without_fits(const Recording& recording) {
  return predict(recording, predicted_model(), {unfitted_constants(), "unfitted"});
}

}  // namespace

TEST_CASE("study predict: with the constants of the program, what the planner says") {
  for (const std::int64_t tokens : {1, 128}) {
    CAPTURE(tokens);
    const Recording& before = recorded_regions(tokens);
    const Predicted made =
        predict(before, predicted_model(), {device_info("sm_90").constants(), "fitted"});
    const StepGraph step = incrementalise(predicted_model());
    const Plans plans =
        plan(analyse(tokens == 1 ? decode_instance(step) : prefill_instance(step)),
             device_info("sm_90"), {.max_candidates = 40, .at = {.S = -1, .T = tokens, .P = 64}});
    REQUIRE(made.recording.tables.size() == before.tables.size());
    CHECK(made.unknown == 1);
    std::size_t points = 0;
    for (std::size_t i = 0; i < before.tables.size(); ++i) {
      const TimedTable &old = before.tables[i], &table = made.recording.tables[i];
      CHECK(table.signature == old.signature + "; fitted constants");
      CHECK(table.description == old.description + ", fitted constants");
      CHECK(table.uses == 3);
      CHECK(table.fallback == old.fallback);
      points += table.points.size();
      const auto space = std::ranges::find(plans.spaces, old.signature, &Space::signature);
      REQUIRE(space != plans.spaces.end());
      REQUIRE(table.points.size() == space->candidates.size());
      for (std::size_t c = 0; c < space->candidates.size(); ++c) {
        const tune::TimedPoint& point = table.points[c];
        CHECK(point.point.id == space->candidates[c].id);  // best first
        CHECK(point.point.predicted == space->candidates[c].cost.microseconds);
        CHECK(point.samples == old.find(point.point.id)->samples);
      }
    }
    CHECK(made.points == points);
  }
}

TEST_CASE("study predict: without what was measured, plans take no longer, and many as long") {
  for (const std::int64_t tokens : {1, 128}) {
    CAPTURE(tokens);
    const Recording& before = recorded_regions(tokens);
    const Predicted fitted =
        predict(before, predicted_model(), {device_info("sm_90").constants(), "fitted"});
    const Predicted made = without_fits(before);
    std::size_t moved = 0;
    for (std::size_t i = 0; i < before.tables.size(); ++i) {
      const TimedTable &table = made.recording.tables[i], &other = fitted.recording.tables[i];
      double last = 0;
      REQUIRE(table.points.size() == other.points.size());
      for (std::size_t p = 0; p < table.points.size(); ++p) {
        const search::Point& point = table.points[p].point;
        CHECK(std::isfinite(point.predicted));
        CHECK(point.predicted >= last);  // the order is theirs, not the recording's
        last = point.predicted;
        CAPTURE(point.id);
        moved += point.id != other.points[p].point.id;
        // But for cache hints and blocks that drift apart, nothing fitted makes a plan faster.
        CHECK(point.predicted <= 1.05 * other.find(point.id)->point.predicted);
      }
    }
    CHECK(moved > made.points / 2);
  }
}

TEST_CASE("study predict: equal predictions are in an order of chance where that is wanted") {
  const Recording& before = recorded_regions(1);
  const auto shuffled = [&](std::uint64_t seed) {
    return predict(before, predicted_model(), {unfitted_constants(), "unfitted", {}, seed})
        .recording;
  };
  const auto ids = [](const Recording& recording) {
    std::vector<std::string> ids;
    for (const TimedTable& table : recording.tables)
      for (const tune::TimedPoint& point : table.points) ids.push_back(point.point.id);
    return ids;
  };
  const Recording made = shuffled(1), by_rank = without_fits(before).recording;
  CHECK(ids(made) == ids(shuffled(1)));
  CHECK(ids(made) != ids(shuffled(2)));
  CHECK(ids(made) != ids(by_rank));
  for (std::size_t i = 0; i < made.tables.size(); ++i)
    for (std::size_t p = 0; p < made.tables[i].points.size(); ++p)
      CHECK(made.tables[i].points[p].point.predicted ==
            by_rank.tables[i].points[p].point.predicted);
}

TEST_CASE("study predict: regions are chosen, and what cannot be predicted is an error") {
  const Recording& before = recorded_regions(1);
  const Predicted one = predict(before, predicted_model(), {unfitted_constants(), "x", {"argmax"}});
  REQUIRE(!one.recording.tables.empty());
  for (const TimedTable& table : one.recording.tables)
    CHECK(table.signature.find("argmax") != std::string::npos);
  const auto error = [](const Recording& recording, const std::vector<std::string>& regions = {}) {
    return error_of(Fault::bad_input, [&] {
      predict(recording, predicted_model(), {unfitted_constants(), "x", regions});
    });
  };
  CHECK(contains(error(before, {"nothing has this"}), "no region"));
  Recording bad = before;
  bad.tables[0].signature = "in0: weight bf16[3]";
  CHECK(contains(error(bad), "M has no such region: \"in0: weight bf16[3]\""));
  bad = before;
  bad.tables[0].signature = "step of 3 regions, 00";
  CHECK(contains(error(bad), "only regions"));
  bad = before;
  bad.header.erase("context");
  CHECK(contains(error(bad), "does not say its context"));
}
