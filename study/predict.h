// A recorded table with other predictions than it was recorded with: what searches over it would
// have begun with, had the cost model known more or less of the device.
#pragma once

#include <cstdint>
#include <optional>

#include "device/device_info.h"
#include "ir/graph.h"
#include "study/timed_table.h"

namespace ac::study {

// Of a GPU of which data sheets are known, and on which nothing was measured. What the H100's
// constants say that was fitted to measurements is not there: no time passes, nothing is slower
// than its peak. What they say that was counted or guessed stays.
const Calibration& unfitted_constants();

struct PredictOptions {
  const Calibration& calibration;
  std::string constants;  // what the new spaces' names say of these: "unfitted"
  // Parts of the signatures or descriptions of the regions that are wanted; none: all.
  std::vector<std::string> regions = {};
  // A seed, for plans with equal predictions in an order of chance; nothing: in the planner's.
  std::optional<std::uint64_t> shuffle = {};
};

struct Predicted {
  Recording recording;
  std::size_t points = 0, unknown = 0;  // the latter: plans that the planner does not know any more
};

// The plans of each region are in the order of their predictions. `normal`: the normal form of the
// recorded model. Plans that are unknown are left out, and so are regions of which no plan is left.
// Each signature and description says which constants they are, as a space with other predictions
// is another space. A step's schedules, a device that no target describes, or a region that is not
// the model's are errors (bad_input).
Predicted predict(const Recording& recording, const Graph& normal, const PredictOptions& options);

}  // namespace ac::study
