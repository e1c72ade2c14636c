#include "families/mma_gemm.h"

#include <algorithm>
#include <cmath>

namespace ac {

using namespace kernels;

Match<MmaGemmTask> MmaGemmTask::match(const Body& body) {
  return match_gemm<MmaGemmTask>(
      body, [&](const FoundProduct& found) { return why_not_by_tensor_cores(body, found); });
}

std::vector<MmaGemmPlan> MmaGemmTask::plans() const {
  struct Tiles {
    int m, n, warp_m, warp_n;
  };
  constexpr Tiles kTiles[] = {
      {16, 64, 16, 32},    {16, 128, 16, 32}, {32, 64, 32, 32},   {32, 128, 32, 32},
      {64, 64, 32, 32},    {64, 128, 32, 32}, {64, 128, 32, 64},  {64, 128, 64, 32},
      {128, 64, 32, 32},   {128, 64, 64, 32}, {128, 128, 32, 32}, {128, 128, 64, 32},
      {128, 128, 64, 64},  {64, 256, 64, 64}, {128, 256, 64, 64}, {256, 128, 64, 64},
      {256, 128, 128, 64},
  };
  // By wgmma, where four warps have 64 tokens.
  constexpr Tiles kGroupTiles[] = {
      {64, 64, 16, 64},    {64, 128, 16, 64},   {64, 128, 16, 128},
      {64, 256, 16, 128},  {128, 64, 16, 64},   {128, 128, 16, 64},
      {128, 128, 16, 128}, {128, 256, 16, 128}, {256, 128, 16, 128},
  };
  std::vector<MmaGemmPlan> plans;
  for (const Tiles& t : kTiles)
    for (const int tile_k : {32, 64, 128})
      for (const int stages : {2, 3, 4, 5, 6})
        for (const int split : {1, 2, 4, 8})
          for (const int group_m : {4, 8, 16})
            for (const int resident : {1, 2, 3})
              plans.push_back({.tile_m = t.m,
                               .tile_n = t.n,
                               .tile_k = tile_k,
                               .warp_m = t.warp_m,
                               .warp_n = t.warp_n,
                               .stages = stages,
                               .split = split,
                               .group_m = group_m,
                               .resident = resident});
  for (const Tiles& t : kGroupTiles)
    for (const int stages : {4, 6, 8})
      for (const int split : {1, 2, 4, 8, 16})
        for (const int resident : {1, 2, 3})
          plans.push_back({.tile_m = t.m,
                           .tile_n = t.n,
                           .tile_k = 64,
                           .warp_m = t.warp_m,
                           .warp_n = t.warp_n,
                           .stages = stages,
                           .split = split,
                           .resident = resident,
                           .tile = Tile::wgmma});
  return plans;
}

const char* MmaGemmTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (plan.tile == Tile::wgmma && !device.warpgroups) return "wgmma needs sm_90a";
  return plan.why_illegal(op, shape, device.max_shared_bytes);
}

namespace {

double mma_rate(const MmaGemmTask& task, const MmaGemmPlan& plan, const DeviceInfo& device) {
  const Calibration::Gemm& fit = device.constants().gemm;
  const double tiles = plan.tiles(task.op, task.shape), blocks = tiles * plan.split;
  const double slots = double(device.multiprocessors) * plan.resident;
  const bool groups = plan.tile == Tile::wgmma;
  const double m = groups ? plan.tile_m : plan.warp_m, n = groups ? plan.tile_n : plan.warp_n;
  const double reuse = m * n / (m + n);
  const double rate = device.tensor_flops *
                      (groups ? fit.wgmma_efficiency * reuse / (reuse + fit.wgmma_half)
                              : fit.mma_efficiency * reuse / (reuse + fit.mma_half)) *
                      busy_share(blocks, slots) *
                      useful_share(task.op, task.shape, tiles, plan.tile_m, plan.tile_n);
  const double steps = std::ceil(std::ceil(double(task.shape.k) / plan.tile_k) / plan.split);
  const double on_one_sm =
      std::min<double>(plan.resident, std::ceil(blocks / device.multiprocessors));
  const double slot = std::max({groups ? fit.slot : fit.slot + plan.tile_k / 16 * fit.slot_fragment,
                                fit.copy_latency / (plan.stages - (groups ? 2 : 1)),
                                plan.stage_bytes() * on_one_sm / fit.copied_by_one});
  const double one_by_one = steps * slot * std::ceil(blocks / slots);
  const double copied =
      blocks * steps * plan.stage_bytes() / (device.bandwidth * fit.l2_over_memory);
  return std::min(rate, task.flops() / std::max(one_by_one, copied));
}

// Of partial sums, which pass through L2 twice.
double combine_seconds(const MmaGemmTask& task, const MmaGemmPlan& plan, const DeviceInfo& device) {
  if (plan.split == 1) return 0;
  const Calibration::Gemm& fit = device.constants().gemm;
  const double sums = double(task.shape.m) * gemm_weight_rows(task.op, task.shape) * plan.split;
  return fit.meet_in_memory + plan.split * fit.next_part +
         2 * 4 * sums / (device.bandwidth * fit.l2_over_memory);
}

}  // namespace

Footprint MmaGemmTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const double blocks = double(plan.tiles(op, shape)) * plan.split;
  const int fragments = plan.tile == Tile::wgmma ? 32 : 2 * (plan.warp_m + plan.warp_n) / 4;
  return {.threads = plan.threads(),
          .shared_bytes = plan.shared_bytes() + 64,
          .registers = kBaseRegisters + plan.accumulators() + fragments,
          .blocks_per_sm = plan.resident,
          .grid = static_cast<long long>(blocks),
          .units = blocks,
          .units_at_once = 1,
          .unit_in_flight = double(plan.stage_bytes()) * (plan.stages - 1),
          .unit_seconds = device.constants().gemm.next_tile,
          .finish_seconds = combine_seconds(*this, plan, device),
          .flops = mma_rate(*this, plan, device)};
}

void MmaGemmTask::write_id(const Plan& plan, IdText& id) {
  id.unless("tile", plan.tile, Tile::mma, "{}", name_of(plan.tile))
      .add("{}x{}x{}/{}x{}/{}/group{}/{}", plan.tile_m, plan.tile_n, plan.tile_k, plan.warp_m,
           plan.warp_n, plan.stages, plan.group_m, plan.resident)
      .unless("split", plan.split, 1, "/split{}", plan.split);
}

std::string_view MmaGemmTask::kind(const Plan& plan) {
  if (plan.tile == Tile::wgmma) return plan.split > 1 ? "wgmma_split" : "wgmma";
  return plan.split > 1 ? "split" : "whole";
}

Generated MmaGemmTask::lower(const Lowering& to, const Plan& plan, const Operands& operands) const {
  Generated out;
  KernelOf<GemmParams> of(to, out, "mma_gemm", op, plan);
  GemmParams& p = of.params;
  fill_product(of, p, to, op, shape, operands);
  const Count tiles = tiles_of(to, op, shape, plan.tile_m, plan.tile_n, operands.x);
  if (plan.split > 1) {
    of.point(p.partial, workspace(scaled(tiles, 4ll * plan.split * plan.tile_m * plan.tile_n)));
    of.point(p.finished, counters(scaled(tiles, 4)));
  }
  of.launch({tiles, plan.split, 1}, plan.threads(), plan.shared_bytes());
  return out;
}

}  // namespace ac
