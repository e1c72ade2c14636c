// What the families have in common whose teams go from row to row, or whose threads from element to
// element.
#pragma once

#include <algorithm>
#include <cmath>

#include "families/family.h"
#include "kernels/rows_plan.h"

namespace ac {

// Why rows are more or longer than kernels count; else empty.
inline std::string why_no_rows(const Body& body, const Shape& shape) {
  const int columns = body.columns(shape);
  return body.rows(shape) < 0 || columns < 0 || columns > kMaxRow ? "sizes beyond 32 bits" : "";
}

struct RowsParallel {
  kernels::Team team;
  int threads, blocks;
  bool persistent;
};
inline std::vector<RowsParallel> rows_parallel() {
  std::vector<RowsParallel> choices;
  for (const kernels::Team team : {kernels::Team::warp, kernels::Team::block})
    for (const int threads : {64, 128, 256, 512, 1024})
      for (const int blocks : {1, 2, 4})
        for (const bool persistent : {true, false})
          choices.push_back({team, threads, blocks, persistent});
  return choices;
}

struct RowsMemory {
  kernels::Keep keep;
  int kept, vector;
};
inline std::vector<RowsMemory> rows_memory() {
  std::vector<RowsMemory> choices;
  for (const int vector : {1, 2, 4, 8}) {
    choices.push_back({kernels::Keep::reread, 1, vector});
    choices.push_back({kernels::Keep::shared, 1, vector});
    for (const int kept : {1, 2, 4, 8}) choices.push_back({kernels::Keep::registers, kept, vector});
  }
  return choices;
}

// Plans of families without a team: threads and grid only.
template <class Plan>
std::vector<Plan> flat_plans() {
  std::vector<Plan> plans;
  for (const int vector : {1, 2, 4, 8})
    for (const RowsParallel& parallel : rows_parallel()) {
      if (parallel.team == kernels::Team::warp) continue;  // there is no team
      Plan plan;
      plan.vector = vector;
      plan.threads = parallel.threads;
      plan.resident = parallel.threads * parallel.blocks;
      plan.persistent = parallel.persistent;
      plans.push_back(plan);
    }
  return plans;
}

template <class Task, class Plan>
Footprint rows_footprint(const Task& task, const Plan& plan, int shared_bytes, int kept,
                         const DeviceInfo& device) {
  constexpr int kRegisters = 32, kVectorRegisters = 14;  // of 8 elements
  const Calibration::Rows& fit = device.constants().rows;
  const double lanes = team_threads(plan.team, plan.threads);
  const double vectors = std::ceil(task.columns / (lanes * plan.vector));
  const double a_row = fit.row + fit.row_vector * vectors;
  const int registers = kRegisters + kVectorRegisters * kept * plan.vector / 8;
  // All that fit, unless the grid is no larger than the plan says.
  const int fit_in =
      std::min(device.threads / plan.threads, device.registers / (registers * plan.threads));
  const int blocks =
      plan.persistent ? plan.blocks_per_sm() : std::max(plan.blocks_per_sm(), fit_in);
  return {.threads = plan.threads,
          .shared_bytes = shared_bytes + 1024,
          .registers = registers,
          .blocks_per_sm = blocks,
          .grid = plan.grid(task.rows, device.multiprocessors),
          .units = double(task.rows),
          .units_at_once = double(plan.rows_at_once()),
          .unit_in_flight = task.bytes() / task.rows * device.latency / a_row,
          .starts = 0,
          .finish_seconds = fit.first_row_vector * vectors,
          .slowdown = plan.persistent ? fit.by_turns : 1};
}

// A thread takes `bytes` of loads at once.
template <class Plan>
Footprint flat_footprint(const Plan& plan, int grid, double units, int held, double bytes,
                         const DeviceInfo& device) {
  return {.threads = plan.threads,
          .shared_bytes = 0,
          .registers = kBaseRegisters - 8 + held,
          .blocks_per_sm = plan.blocks_per_sm(),
          .grid = grid,
          .units = std::max(units, 1.0),
          .units_at_once = double(plan.threads),
          .unit_in_flight = bytes,
          .unit_seconds = device.constants().gemv.next_group};
}

}  // namespace ac
