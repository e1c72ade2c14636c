#include "study/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "ir/assumptions.h"
#include "ir/incrementalise.h"
#include "plan/planner.h"
#include "search/random.h"

namespace ac::study {
namespace {

constexpr Calibration unfitted() {
  constexpr double kAny = std::numeric_limits<double>::infinity();  // bytes a second
  Calibration made;
  Calibration::Gemv& gemv = made.gemv;
  gemv.block_start = gemv.stage_element = gemv.next_group = gemv.next_shared_group = 0;
  gemv.further_row = gemv.late_signal = gemv.padding = gemv.plain_by_mma = 0;
  gemv.alone = gemv.async_copies = gemv.bulk_copies = gemv.cache_hint = gemv.whole_tile = 1;
  Calibration::Gemm& gemm = made.gemm;
  gemm.wgmma_efficiency = 1;
  gemm.slot = gemm.slot_fragment = gemm.copy_latency = 0;
  gemm.meet_in_memory = gemm.next_part = gemm.next_tile = 0;
  gemm.l2_over_memory = gemm.copied_by_one = kAny;
  Calibration::TmaGemm& tma = made.tma_gemm;
  tma.efficiency = 1;
  tma.next_tile = tma.start = tma.meet = 0;
  tma.copied_by_one = tma.l2_over_memory = tma.sent = kAny;
  Calibration::PrefillAttention& prompt = made.prefill_attention;
  prompt.wgmma_peak = prompt.mma_alone = prompt.wgmma_alone = 1;
  prompt.wgmma_groups_half = prompt.wgmma_keys_half = 0;
  prompt.wgmma_queries_half = prompt.wgmma_dim_half = 0;
  made.layers = {.layer = 0, .efficiency = 1};
  Calibration::Rows& rows = made.rows;
  rows.row = rows.row_vector = rows.first_row_vector = 0, rows.by_turns = 1;
  Calibration::Library& library = made.library;
  for (Calibration::Library::Tile& tile : library.tiles) tile.share = 1;
  library.bandwidth = 1, library.start = 0;
  return made;
}

bool is_wanted(const TimedTable& table, const std::vector<std::string>& regions) {
  return regions.empty() || std::ranges::any_of(regions, [&](const std::string& text) {
           return table.signature.find(text) != std::string::npos ||
                  table.description.find(text) != std::string::npos;
         });
}

// All legal plans of the regions of the recorded step.
std::vector<Space> spaces_of(const Json& header, const Graph& normal, const DeviceInfo& device) {
  const Bindings at{.S = -1,
                    .T = header.at("tokens").get<std::int64_t>(),
                    .P = header.at("context").get<std::int64_t>()};
  const StepGraph step = incrementalise(normal);
  const Regions regions =
      analyse(without_assumptions(at.T == 1 ? decode_instance(step) : prefill_instance(step)));
  return plan(regions, device,
              {.max_candidates = std::numeric_limits<std::size_t>::max(), .at = at})
      .spaces;
}

void shuffle_equals(std::vector<Candidate>& candidates, std::uint64_t seed) {
  search::Random(seed).shuffle(candidates);
  std::ranges::stable_sort(candidates, {},
                           [](const Candidate& candidate) { return candidate.cost.microseconds; });
}

}  // namespace

const Calibration& unfitted_constants() {
  static constexpr Calibration kUnfitted = unfitted();
  return kUnfitted;
}

Predicted predict(const Recording& recording, const Graph& normal, const PredictOptions& options) {
  for (const char* field : {"target", "tokens", "context"})
    if (!recording.header.contains(field))
      bad_input("the table does not say its {}: what its plans take cannot be predicted", field);
  DeviceInfo device = device_info(recording.header.at("target").get<std::string>());
  device.calibration = &options.calibration;
  std::vector<Space> spaces = spaces_of(recording.header, normal, device);
  Predicted made;
  made.recording.header = recording.header, made.recording.resumed = recording.resumed;
  for (const TimedTable& table : recording.tables) {
    if (!is_wanted(table, options.regions)) continue;
    if (table.sites || table.signature.starts_with("step of"))
      bad_input("{}: only regions are predicted again", table.description);
    const auto space = std::ranges::find(spaces, table.signature, &Space::signature);
    if (space == spaces.end())
      bad_input("{}: {} has no such region: {}", table.description,
                recording.header.at("model").get<std::string>(), quote(table.signature));
    if (options.shuffle)
      shuffle_equals(space->candidates, search::derived_seed(*options.shuffle, made.points));
    TimedTable again;
    again.region = static_cast<int>(made.recording.tables.size());
    again.signature = fmt::format("{}; {} constants", table.signature, options.constants);
    again.description = fmt::format("{}, {} constants", table.description, options.constants);
    again.uses = table.uses, again.fallback = table.fallback;
    again.references = table.references, again.attempt_seconds = table.attempt_seconds;
    // In the order of these predictions, as searches take equal ones by their place: that of the
    // recording knows what was fitted.
    for (const Candidate& candidate : space->candidates) {
      const tune::TimedPoint* const timed = table.find(candidate.id);
      if (!timed) continue;
      tune::TimedPoint point = *timed;
      point.point.predicted = candidate.cost.microseconds;
      again.add(std::move(point));
    }
    made.points += again.points.size();
    made.unknown += table.points.size() - again.points.size();
    if (!again.points.empty()) made.recording.tables.push_back(std::move(again));
  }
  if (made.recording.tables.empty()) bad_input("no region of the table has plans that are wanted");
  return made;
}

}  // namespace ac::study
