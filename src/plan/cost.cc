#include <algorithm>
#include <cmath>
#include <span>

#include "plan/plans.h"
#include "plan/space.h"

namespace ac {
namespace {

// Blocks that an SM really has at once.
int resident_blocks(const Footprint& need, const DeviceInfo& device) {
  constexpr int kReserved = 1024;  // shared memory that each block loses to the system
  int blocks = std::min({need.blocks_per_sm, device.blocks, device.threads / need.threads,
                         device.registers / (need.threads * need.registers)});
  if (need.shared_bytes > 0)
    blocks = std::min(blocks, (device.shared_bytes) / (need.shared_bytes + kReserved));
  return std::max(blocks, 1);
}

// The shapes of tiles that a library has, and the share of the peak that each reaches in its inner
// loop: 700 to 765 of 989 TFLOP/s were measured of large products on an H100, less of small ones.
struct LibraryTile {
  double m, n, share;
};
constexpr LibraryTile kLibraryTiles[] = {
    {256, 128, 0.74}, {128, 256, 0.74}, {128, 128, 0.66}, {64, 128, 0.5}, {64, 64, 0.35}};
constexpr double kLibraryBandwidth = 0.8, kLibraryStart = 2.7e-6;

// It takes the best tiles for the problem, or splits K so that all multiprocessors have work.
double library_seconds(const LibraryTask& task, int rows, const DeviceInfo& device) {
  const bool tensor = task.op.x != kernels::Type::f32 && device.sm > 0;
  const double peak = tensor ? device.tensor_flops : device.flops;
  const double sms = device.multiprocessors;
  double best = 0;
  // What stands in for it on the host has tiles of one element.
  constexpr LibraryTile kOne[] = {{1, 1, 1}};
  for (const LibraryTile& tile :
       device.sm > 0 ? std::span<const LibraryTile>(kLibraryTiles) : kOne) {
    const double tiles = std::ceil(task.shape.m / tile.m) * std::ceil(rows / tile.n);
    const double split =
        std::clamp(std::floor(sms / tiles), 1.0, std::max(1.0, std::floor(task.shape.k / 512.0)));
    const double rounds = std::ceil(tiles / sms) / split;
    const double seconds = rounds * 2 * tile.m * tile.n * task.shape.k / (peak / sms * tile.share);
    if (best == 0 || seconds < best) best = seconds;
  }
  kernels::GemmOp op = task.op;
  op.matrices = 1;
  const kernels::GemmShape shape{task.shape.m, {rows}, task.shape.k};
  const double memory = kernels::gemm_bytes(op, shape) / (device.bandwidth * kLibraryBandwidth);
  return device.launch + kLibraryStart + std::max(best, memory);
}

Cost predict_library(const LibraryTask& task, const DeviceInfo& device) {
  Cost cost;
  cost.bytes = kernels::gemm_bytes(task.op, task.shape);
  cost.flops = kernels::gemm_flops(task.op, task.shape);
  for (int i = 0; i < task.op.matrices; ++i)
    cost.microseconds += library_seconds(task, task.shape.rows[i], device) * 1e6;
  cost.occupancy = 1;
  cost.limit = Limit::compute;
  return cost;
}

// Of norm, RoPE and append on a product's sums: what a block takes longer for each of its tiles.
// Not fitted.
constexpr double kTurnTile = 1.5e-6;

// One kernel after the other, the second without what goes before attention when it is alone.
Cost predict_qkv(const Implementation<QkvAttentionTask>& made, const DeviceInfo& device) {
  const auto& [task, plan] = made;
  const Implementation<TmaGemmTask> product{{task.op.product, task.shape}, plan.product()};
  Cost cost = predict(product, device);
  const Cost attention =
      predict(Implementation<PrefillAttentionTask>{task.attention, plan.attention()}, device);
  const double tiles = double(product.plan.blocks(task.op.product, task.shape)) /
                       product.plan.at_once(device.multiprocessors);
  cost.microseconds +=
      attention.microseconds + (std::ceil(tiles) * kTurnTile - device.launch) * 1e6;
  cost.bytes = bytes_of(made);
  cost.flops = flops_of(made);
  return cost;
}

}  // namespace

Cost predict(const Choice& choice, const DeviceInfo& device) {
  if (const auto* library = std::get_if<Implementation<LibraryTask>>(&choice))
    return predict_library(library->task, device);
  if (const auto* qkv = std::get_if<Implementation<QkvAttentionTask>>(&choice))
    return predict_qkv(*qkv, device);
  const Footprint need = footprint(choice, device);
  Cost cost;
  cost.bytes = bytes_of(choice);
  cost.flops = flops_of(choice);
  const int resident = resident_blocks(need, device);
  cost.occupancy = double(resident) * need.threads / device.threads;

  const double sms = device.multiprocessors;
  const double slots = std::min<double>(double(need.grid), sms * resident) * need.units_at_once;
  const double rounds = std::ceil(need.units / slots);
  const double last = need.units - (rounds - 1) * slots;  // units of the last round
  // Little's law: the bytes under way, of what the bus takes in one latency.
  const double wanted = device.bandwidth * device.latency;
  const auto share = [&](double units) {
    const double in_flight = std::min(units * need.unit_in_flight, cost.bytes);
    return std::max(in_flight / std::hypot(in_flight, wanted), 1e-6);
  };
  // Blocks drift apart, so that the last round is not quite by itself.
  constexpr double kAlone = 0.7;
  const double busy = std::min(slots, need.units), rest = last / need.units;
  const double memory = need.slowdown * cost.bytes / device.bandwidth *
                        ((1 - kAlone * rest) / share(busy) + kAlone * rest / share(last));
  const double compute = cost.flops / (need.flops > 0 ? need.flops : device.flops);

  // Blocks beyond those that are resident start one after another.
  const double generations = std::max(1.0, double(need.grid) / (sms * resident));
  const double starts = (generations - 1) * need.start_seconds +
                        need.block_seconds * need.blocks_per_sm * generations;
  const double body = std::max(memory, compute) + starts + need.finish_seconds +
                      need.unit_seconds * std::min(rounds, need.units);
  cost.microseconds = (device.launch + body) * 1e6;
  cost.limit = body < device.launch ? Limit::launch
               : compute > memory   ? Limit::compute
               : share(busy) < 0.7  ? Limit::latency
                                    : Limit::memory;
  return cost;
}

Risk risk_of(const Choice& choice, const DeviceInfo& device) {
  if (const auto* qkv = std::get_if<Implementation<QkvAttentionTask>>(&choice)) {
    const auto& [task, plan] = *qkv;
    return std::max(
        risk_of(Implementation<TmaGemmTask>{{task.op.product, task.shape}, plan.product()}, device),
        risk_of(Implementation<PrefillAttentionTask>{task.attention, plan.attention()}, device));
  }
  const Footprint need = footprint(choice, device);
  // Compilers need a few registers more than any estimate, and spill when there are none.
  const double registers =
      double(need.registers) * need.threads * need.blocks_per_sm / device.registers;
  const double shared = double(need.shared_bytes) / std::max(1, device.max_shared_bytes);
  if (registers > 0.85 || shared > 0.9) return Risk::high;
  return registers > 0.6 || shared > 0.6 ? Risk::medium : Risk::low;
}

}  // namespace ac
