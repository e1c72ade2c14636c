#include "families/tma_gemm.h"

#include <algorithm>
#include <cmath>

namespace ac {

using namespace kernels;

Match<TmaGemmTask> TmaGemmTask::match(const Body& body) {
  return match_gemm<TmaGemmTask>(body, [&](const FoundProduct& found) -> const char* {
    if (const char* why = why_not_by_tensor_cores(body, found)) return why;
    const NodeId x = found.operands.x;
    if (*body.row_pitch(x) < found.shape.k || !layout_of(body.graph(), x).offset.divided_by(8))
      return "the copy engine needs rows of x that lie apart, at multiples of 16 bytes";
    return nullptr;
  });
}

std::vector<TmaGemmPlan> TmaGemmTask::plans() const {
  std::vector<TmaGemmPlan> plans;
  for (const int tile_m : {64, 128})
    for (const int tile_n : {64, 128, 256})
      for (const int stages : {3, 4, 6, 8})
        for (const TmaCluster& cluster : kTmaClusters)
          for (const int group_m : {4, 8, 16})
            plans.push_back({.tile_m = tile_m,
                             .tile_n = tile_n,
                             .stages = stages,
                             .cluster_m = cluster.m,
                             .cluster_n = cluster.n,
                             .group_m = group_m});
  for (const int tile_m : {64, 128})
    for (const int tile_n : {64, 128})
      for (const int stages : {3, 4, 6, 8})
        for (const TmaCluster& cluster : kTmaClusters)
          for (const int parts : {2, 3, 4})
            plans.push_back({.tile_m = tile_m,
                             .tile_n = tile_n,
                             .stages = stages,
                             .cluster_m = cluster.m,
                             .cluster_n = cluster.n,
                             .cluster_k = parts});
  return plans;
}

const char* TmaGemmTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (!device.warpgroups) return "the copy engine's tiles need sm_90a";
  const char* const reason = plan.why_illegal(op, shape, device.max_shared_bytes);
  if (reason != nullptr || plan.cluster_k == 1) return reason;
  if (plan.blocks(op, shape) / plan.cluster_k >= device.multiprocessors)
    return "whole tiles are enough work for all multiprocessors";
  return nullptr;
}

namespace {

constexpr int kTmaRegisters = 168;  // a thread's at most: those that multiply take them of the rest

// Blocks go from slot to slot of their ring, of which each block of a cluster copies its part.
double tma_seconds(const TmaGemmTask& task, const TmaGemmPlan& plan, const DeviceInfo& device) {
  const Calibration::TmaGemm& fit = device.constants().tma_gemm;
  const Calibration::Gemm& any = device.constants().gemm;
  const double blocks = double(plan.blocks(task.op, task.shape));
  const double rounds = std::ceil(blocks / plan.at_once(device.multiprocessors));
  const double steps = std::ceil(std::ceil(task.shape.k / 64.0) / plan.cluster_k);
  const bool plain = task.op.format.is_plain();
  const int codes = plan.code_bytes(task.op);
  const double weights = plain ? 128.0 * plan.tile_n / plan.cluster_m : codes;
  const double copied = 128.0 * plan.tile_m / plan.cluster_n + weights;
  const double read = 128.0 * plan.groups() * (64 + plan.tile_n);  // by products
  const double made = plain
                          ? 0
                          : std::max(64 * plan.tile_n / fit.elements_of_codes,
                                     (read + plan.stage_bytes() + 2 * codes) / fit.through_shared);
  const double multiplied = 2.0 * plan.tile_m * plan.tile_n * 64 * device.multiprocessors /
                            (device.tensor_flops * fit.efficiency);
  const double step = std::max({any.slot, any.copy_latency / (plan.stages - 1),
                                copied / fit.copied_by_one, made, multiplied});
  const double few = 1 + fit.few_slots / (plan.stages * plan.stages);
  const double through_l2 = blocks * steps * copied / (device.bandwidth * fit.l2_over_memory);
  double next = fit.next_tile;
  if (plan.cluster_k > 1) next += fit.meet + plan.received_bytes(task.op) / fit.sent;
  return std::max(rounds * steps * step, through_l2) * few + rounds * next;
}

}  // namespace

Footprint TmaGemmTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const double blocks = double(plan.blocks(op, shape));
  const int together = plan.at_once(device.multiprocessors);
  return {.threads = plan.threads(),
          .shared_bytes = plan.shared_bytes(op) + 256,
          .registers = kTmaRegisters,
          .blocks_per_sm = 1,
          .grid = static_cast<long long>(std::min<double>(blocks, together)),
          .units = blocks,
          .units_at_once = 1,
          .unit_in_flight = double(plan.stage_bytes() + plan.code_bytes(op)) * (plan.stages - 1),
          .finish_seconds = device.constants().tma_gemm.start,
          .flops = flops() / tma_seconds(*this, plan, device)};
}

void TmaGemmTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}x{}", plan.tile_m, plan.tile_n)
      .unless("cluster_k", plan.cluster_k, 1, "k{}", plan.cluster_k)
      .add("/{}/c{}x{}/group{}", plan.stages, plan.cluster_m, plan.cluster_n, plan.group_m);
}

namespace {

template <class Params>
Generated lower_tma(const TmaGemmTask& task, const Lowering& to, const TmaGemmPlan& plan,
                    const ProductOperands& operands) {
  Generated out;
  KernelOf<Params> of(to, out, "tma_gemm", task.op, plan);
  const Count blocks = fill_product(of, of.params, to, task.op, task.shape, plan, operands);
  of.launch({blocks, 1, 1}, plan.threads(), plan.shared_bytes(task.op));
  return out;
}

}  // namespace

Generated TmaGemmTask::lower(const Lowering& to, const Plan& plan, const Operands& operands) const {
  return op.format.is_plain() ? lower_tma<TmaGemmParams>(*this, to, plan, operands)
                              : lower_tma<CodedTmaGemmParams>(*this, to, plan, operands);
}

}  // namespace ac
