// What plans cost an SM, whether a device has it, and the work that tasks are.
#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

#include "plan/plans.h"

namespace ac {
namespace {

using namespace kernels;

constexpr int kMaxThreads = 1024;
constexpr int kBaseRegisters = 32;
constexpr int kGemvRegisters = 26;  // so that measured plans of 64 registers stay legal

// Fitted to bench/results: see test_plan_cost.cc, which holds the model to them.
constexpr double kStageElement = 14e-12;  // to bring an element of x on chip and convert it
constexpr double kNextGroup = 13e-9;      // sum, epilogue and store of a warp's rows
constexpr double kNextSharedGroup = 24e-9;
constexpr double kFurtherRow = 23e-9;
constexpr double kLateSignal = 0.25e-6;
constexpr double kAsyncCopies = 1.045, kBulkCopies = 1.013;
constexpr double kCacheHint = 0.98;
constexpr double kPadding = 0.026;                       // cost of steps beyond the end of a row
constexpr double kScalarStep = 0.4e-6, kCombine = 1e-6;  // of attention; not fitted

double slowdown_of(const GemvTask& task, const GemvPlan& plan, double padded) {
  double factor = 1 + kPadding * (padded / task.k - 1);
  if (plan.ring == Ring::async_copy) factor *= kAsyncCopies;
  if (plan.ring == Ring::bulk_copy) factor *= kBulkCopies;
  if (plan.ring == Ring::registers && plan.cache != kernels::Cache::streaming) factor *= kCacheHint;
  return factor;
}

Footprint measure(const GemvTask& task, const GemvPlan& plan, const DeviceInfo& device) {
  const bool in_registers = plan.ring == Ring::registers || plan.ring == Ring::none;
  const int held = plan.ring == Ring::registers ? plan.rows * plan.depth * 4 : 8;
  const int grid = plan.grid(task.op, task.n, device.multiprocessors);
  const double groups = divide_up(task.n, plan.outputs_per_group(task.op));
  const double at_once = std::min(groups, double(grid) * plan.groups_per_block());
  // Rings in shared memory run on into the next group, where there is one.
  const int steps = plan.steps(task.op, task.k);
  const int depth = in_registers || groups <= at_once ? std::min(plan.depth, steps) : plan.depth;
  const double load =
      plan.ring == Ring::none ? code_bits(task.op.format, task.op.weight) / 4.0 : 16.0;
  // Of a format, a vector of x and one of a row are longer, and each row has scales.
  const bool plain = task.op.format == Format::plain;
  const int further =
      plain ? 0 : 2 * (task.op.vector() - 16 / bytes_of(task.op.weight)) + 4 * plan.rows + 8;
  const double padded = double(plan.padded_vectors(task.op, task.k)) * task.op.vector();
  return {.threads = plan.threads,
          .shared_bytes = plan.shared_bytes(task.op, task.k) + 2048 + 8 * plan.warps() * plan.rows,
          .registers = kGemvRegisters + held + plan.rows * 2 + further,
          .blocks_per_sm = plan.blocks_per_sm(),
          .grid = grid,
          .units = groups,
          .units_at_once = double(plan.groups_per_block()),
          .unit_in_flight = load * 32 * plan.split * plan.rows * depth * plan.chunks,
          .unit_seconds = in_registers ? kNextGroup : kNextSharedGroup,
          .block_seconds = kStageElement * padded,
          .finish_seconds =
              kFurtherRow * (plan.rows - 1) + (plan.signal == Signal::last_group ? kLateSignal : 0),
          .slowdown = slowdown_of(task, plan, padded)};
}

Footprint measure(const AttentionTask& task, const AttentionPlan& plan, const DeviceInfo&) {
  const int tile = plan.tile_tokens(task.op);
  const double tiles = divide_up(task.tokens + 1, tile);
  // No more splits than give each warp its tiles; the others have nothing to do.
  const double splits =
      std::clamp(std::ceil(tiles / (plan.min_tiles * plan.warps())), 1.0, double(plan.splits));
  const bool scalar = plan.tile == Tile::scalar;
  return {.threads = plan.threads,
          .shared_bytes = plan.shared_bytes(task.op) + 64 +
                          (3 * plan.warps() + 2 + plan.splits) * task.op.group * 4,
          .registers = scalar ? 40 + task.op.group * task.op.head_dim / 32 : 96,
          .blocks_per_sm = plan.blocks_per_sm(),
          .grid = static_cast<long long>(splits) * task.kv_heads,
          .units = tiles * task.kv_heads,
          .units_at_once = double(plan.warps()),
          .unit_in_flight = 2.0 * tile * task.op.head_dim * bytes_of(task.op.type),
          .unit_seconds = scalar ? kScalarStep : kNextSharedGroup,
          .finish_seconds = splits > 1 ? kCombine + splits * kNextGroup : kCombine / 2};
}

// The matrix families are held up by arithmetic; these efficiencies are not fitted, but for that of
// wgmma, to a product of 8192 tokens.
constexpr double kPlainEfficiency = 0.4, kTensorEfficiency = 0.45, kNextTile = 0.3e-6;
constexpr double kGroupEfficiency = 0.95;

// Tiles of a matrix product that share an SM's arithmetic: what the last round leaves idle counts.
double busy_share(double tiles, double at_once) {
  return tiles / (std::ceil(tiles / at_once) * at_once);
}

// The share of what tiles compute that is asked for.
double useful_share(const GemmOp& op, const GemmShape& shape, double tiles, int tile_m,
                    int tile_n) {
  return double(shape.m) * gemm_weight_rows(op, shape) / (tiles * tile_m * tile_n);
}

Footprint measure(const GemmTask& task, const GemmPlan& plan, const DeviceInfo& device) {
  const double tiles = plan.grid(task.op, task.shape);
  const double reuse = double(plan.thread_m) * plan.thread_n / (plan.thread_m + plan.thread_n);
  return {
      .threads = plan.threads(),
      .shared_bytes = plan.shared_bytes(),
      .registers = kBaseRegisters + plan.thread_m * plan.thread_n + plan.thread_m + plan.thread_n,
      .blocks_per_sm = plan.blocks_per_sm(),
      .grid = static_cast<long long>(tiles),
      .units = tiles,
      .units_at_once = 1,
      .unit_in_flight =
          double(plan.tile_m + plan.tile_n) * plan.tile_k * bytes_of(task.op.weight) * plan.stages,
      .unit_seconds = kNextTile,
      .flops = device.flops * kPlainEfficiency * reuse / (reuse + 2) *
               busy_share(tiles * 4, 4.0 * device.multiprocessors)};
}

// What few tokens are bound by: a block works through slots of its ring one by one, however small
// they are; an SM copies only so fast, however few others do; and what blocks copy comes through L2
// again and again. Fitted to wgmma plans at 128 tokens in 2026-11-21-h100-short-prompt.jsonl, but
// for kSlotFragment, the time of a slot's 16 elements of K.
constexpr double kSlot = 0.12e-6, kSlotFragment = 0.03e-6, kL2OverMemory = 2.1;
constexpr double kCopyLatency = 1.1e-6, kCopiedByOne = 65e9;  // seconds, bytes a second
constexpr double kMeetInMemory = 1.1e-6, kNextPart = 1.5e-6;

double gemm_rate(const MmaGemmTask& task, const MmaGemmPlan& plan, const DeviceInfo& device) {
  const double tiles = plan.tiles(task.op, task.shape), blocks = tiles * plan.split;
  const double slots = double(device.multiprocessors) * plan.resident;
  const bool groups = plan.tile == Tile::wgmma;
  const double m = groups ? plan.tile_m : plan.warp_m, n = groups ? plan.tile_n : plan.warp_n;
  const double reuse = m * n / (m + n);
  const double rate = device.tensor_flops *
                      (groups ? kGroupEfficiency * reuse / (reuse + 16)
                              : kTensorEfficiency * reuse / (reuse + 12)) *
                      busy_share(blocks, slots) *
                      useful_share(task.op, task.shape, tiles, plan.tile_m, plan.tile_n);
  const double steps = std::ceil(std::ceil(double(task.shape.k) / plan.tile_k) / plan.split);
  const double on_one_sm =
      std::min<double>(plan.resident, std::ceil(blocks / device.multiprocessors));
  const double slot = std::max({groups ? kSlot : kSlot + plan.tile_k / 16 * kSlotFragment,
                                kCopyLatency / (plan.stages - (groups ? 2 : 1)),
                                plan.stage_bytes() * on_one_sm / kCopiedByOne});
  const double one_by_one = steps * slot * std::ceil(blocks / slots);
  const double copied = blocks * steps * plan.stage_bytes() / (device.bandwidth * kL2OverMemory);
  return std::min(rate, gemm_flops(task.op, task.shape) / std::max(one_by_one, copied));
}

// Of partial sums, which pass through L2 twice.
double combine_seconds(const MmaGemmTask& task, const MmaGemmPlan& plan, const DeviceInfo& device) {
  if (plan.split == 1) return 0;
  const double sums = double(task.shape.m) * gemm_weight_rows(task.op, task.shape) * plan.split;
  return kMeetInMemory + plan.split * kNextPart + 2 * 4 * sums / (device.bandwidth * kL2OverMemory);
}

Footprint measure(const MmaGemmTask& task, const MmaGemmPlan& plan, const DeviceInfo& device) {
  const double blocks = double(plan.tiles(task.op, task.shape)) * plan.split;
  const int fragments = plan.tile == Tile::wgmma ? 32 : 2 * (plan.warp_m + plan.warp_n) / 4;
  return {.threads = plan.threads(),
          .shared_bytes = plan.shared_bytes() + 64,
          .registers = kBaseRegisters + plan.accumulators() + fragments,
          .blocks_per_sm = plan.resident,
          .grid = static_cast<long long>(blocks),
          .units = blocks,
          .units_at_once = 1,
          .unit_in_flight = double(plan.stage_bytes()) * (plan.stages - 1),
          .unit_seconds = kNextTile,
          .finish_seconds = combine_seconds(task, plan, device),
          .flops = gemm_rate(task, plan, device)};
}

// Fitted to the study kernel's lines in 2026-11-21-h100-tma-kernels.jsonl; test_plan_tma.cc holds
// the model to them.
constexpr int kTmaRegisters = 168;  // a thread's at most: those that multiply take them of the rest
constexpr double kTmaEfficiency = 0.87, kTmaCopiedByOne = 110e9, kTmaL2OverMemory = 2.2;
constexpr double kTmaNextTile = 2e-6, kTmaStart = 1.5e-6;
// Of parts of K, and of bytes that a block is sent: 2026-11-22-h100-short-prompt-chain.jsonl.
constexpr double kTmaMeet = 0.2e-6, kTmaSent = 35e9;
constexpr double kTmaFewSlots = 0.1;  // not fitted: of equal plans, that with more slots

// Blocks go from slot to slot of their ring, of which each block of a cluster copies its part.
double tma_seconds(const TmaGemmTask& task, const TmaGemmPlan& plan, const DeviceInfo& device) {
  const double blocks = double(plan.blocks(task.op, task.shape));
  const double rounds = std::ceil(blocks / plan.at_once(device.multiprocessors));
  const double steps = std::ceil(std::ceil(task.shape.k / 64.0) / plan.cluster_k);
  const double copied =
      128 * (double(plan.tile_m) / plan.cluster_n + double(plan.tile_n) / plan.cluster_m);
  const double multiplied = 2.0 * plan.tile_m * plan.tile_n * 64 * device.multiprocessors /
                            (device.tensor_flops * kTmaEfficiency);
  const double step =
      std::max({kSlot, kCopyLatency / (plan.stages - 1), copied / kTmaCopiedByOne, multiplied});
  const double few = 1 + kTmaFewSlots / (plan.stages * plan.stages);
  const double through_l2 = blocks * steps * copied / (device.bandwidth * kTmaL2OverMemory);
  double next = kTmaNextTile;
  if (plan.cluster_k > 1) next += kTmaMeet + plan.received_bytes(task.op) / kTmaSent;
  return std::max(rounds * steps * step, through_l2) * few + rounds * next;
}

Footprint measure(const TmaGemmTask& task, const TmaGemmPlan& plan, const DeviceInfo& device) {
  const double blocks = double(plan.blocks(task.op, task.shape));
  const int together = plan.at_once(device.multiprocessors);
  return {.threads = plan.threads(),
          .shared_bytes = plan.shared_bytes() + 256,
          .registers = kTmaRegisters,
          .blocks_per_sm = 1,
          .grid = static_cast<long long>(std::min<double>(blocks, together)),
          .units = blocks,
          .units_at_once = 1,
          .unit_in_flight = double(plan.stage_bytes()) * (plan.stages - 1),
          .finish_seconds = kTmaStart,
          .flops = gemm_flops(task.op, task.shape) / tma_seconds(task, plan, device)};
}

// A library's kernels are not ours to describe: see library_seconds.
Footprint measure(const LibraryTask&, const LibraryPlan&, const DeviceInfo&) {
  return {.threads = 128, .blocks_per_sm = 1, .grid = 1};
}

// The share of the time in which multiprocessors have work, since later queries see more keys:
// blocks with the most come first, and each goes to the one that is done first.
double balance(const PrefillAttentionTask& task, const PrefillAttentionPlan& plan, int heads,
               const DeviceInfo& device) {
  const int tiles = prefill_tiles(plan, std::max(1, task.new_tokens));
  constexpr double kMany = 16;  // blocks of one, from which on they are as good as even
  if (double(tiles) * heads > kMany * device.multiprocessors) return 1;
  std::priority_queue<double, std::vector<double>, std::greater<>> busy;
  for (int i = 0; i < device.multiprocessors; ++i) busy.push(0);
  double total = 0, longest = 0;
  for (int tile = tiles - 1; tile >= 0; --tile) {
    const int last = std::min(task.new_tokens, (tile + 1) * plan.query_tile);
    const double seen = double(task.tokens) + last;
    const double keys =
        task.window > 0 ? std::min(seen, double(task.window) + plan.query_tile) : seen;
    for (int head = 0; head < heads; ++head) {
      const double until = busy.top() + keys;
      busy.pop();
      busy.push(until);
      total += keys, longest = std::max(longest, until);
    }
  }
  return total / (longest * device.multiprocessors);
}

// Of mma fitted to bench/results (see test_plan_cost.cc): what keys bring along is used by all
// queries of a warp; each tile of them costs a softmax's beginning and end. Of wgmma by hand, to
// 2026-11-22-h100-prompt-attention.jsonl: groups of four warps hide each other's softmax, which
// short heads have more of; what a block of many queries brings comes through L2 less often.
double attention_rate(const PrefillAttentionTask& task, const PrefillAttentionPlan& plan,
                      const DeviceInfo& device) {
  const double queries = plan.warp_queries(), keys = plan.warp_keys();
  switch (plan.tile) {
    case Tile::scalar:
      return device.flops * kPlainEfficiency * queries / (queries + 4);
    case Tile::mma:
      return device.tensor_flops * kTensorEfficiency * queries / (queries + 4) * keys / (keys + 8);
    case Tile::wgmma:
      break;
  }
  const int fit = device.shared_bytes / (plan.shared_bytes(task.op) + 2048);
  const double shared_by = std::min(plan.query_tile, 128), dim = task.op.head_dim;
  const double groups =
      std::min(plan.warps / 4.0 * std::clamp(fit, 1, plan.resident), std::max(2.0, 256 / dim));
  return device.tensor_flops * 2.22 * groups / (groups + 0.9) * keys / (keys + 16) * shared_by /
         (shared_by + 36) * dim / (dim + 82);
}

// A warp by itself waits for each of its products: what prompts of 128 tokens reach, which have 128
// warps on a whole H100 (bench/results/2026-11-21-h100-short-prompt-attention.jsonl); of wgmma,
// what blocks of four warps reach that are alone (2026-11-22-h100-prompt-attention.jsonl).
double warps_rate(const PrefillAttentionPlan& plan, double blocks, const DeviceInfo& device) {
  if (plan.tile == Tile::scalar) return device.flops;
  const double warps =
      std::min(blocks, double(plan.resident) * device.multiprocessors) * plan.warps;
  const double share = plan.tile == Tile::wgmma ? 0.1 : 0.043;  // of a multiprocessor's peak
  return warps * share * device.tensor_flops / device.multiprocessors;
}

Footprint measure(const PrefillAttentionTask& task, const PrefillAttentionPlan& plan,
                  const DeviceInfo& device) {
  const bool scalar = plan.tile == Tile::scalar;
  const int heads = task.kv_heads * task.op.group;
  const double blocks = double(heads) * prefill_tiles(plan, std::max(1, task.new_tokens));
  int registers = plan.registers(task.op);
  if (scalar) registers = 40 + plan.warp_queries() * divide_up(task.op.head_dim, 32);
  if (plan.tile == Tile::wgmma)  // of all threads in the mean
    registers = (registers * plan.warps + plan.loader_registers * 4) / (plan.warps + 4);
  return {.threads = plan.threads(),
          .shared_bytes = plan.shared_bytes(task.op),
          .registers = registers,
          .blocks_per_sm = plan.resident,
          .grid = static_cast<long long>(blocks),
          .units = blocks,
          .units_at_once = 1,
          .unit_in_flight = 2.0 * plan.keys_bytes(task.op) * plan.stages,
          .unit_seconds = kNextTile,
          .block_seconds = 0,
          .finish_seconds = device.launch,  // of the kernel that appends
          .flops = std::min(attention_rate(task, plan, device) * balance(task, plan, heads, device),
                            warps_rate(plan, blocks, device))};
}

// Of the product, which is the larger of the two; predict() adds attention's cost.
Footprint measure(const QkvAttentionTask& task, const QkvAttentionPlan& plan,
                  const DeviceInfo& device) {
  return measure(TmaGemmTask{task.op.product, task.shape}, plan.product(), device);
}

// Rows one after the other, of norms fitted to bench/results (see test_plan_cost.cc): a team's next
// row waits for its last, and takes longer by each vector of a thread. The first one's instructions
// are not there yet.
constexpr double kRow = 0.9e-6, kRowVector = 0.147e-6, kFirstRowVector = 0.26e-6;
constexpr double kRowsByTurns = 1.04;                        // instead of by whoever is done first
constexpr int kRowRegisters = 32, kRowVectorRegisters = 14;  // of 8 elements

template <class Task, class Plan>
Footprint measure_rows(const Task& task, const Plan& plan, int shared_bytes, int kept, double bytes,
                       const DeviceInfo& device) {
  const double lanes = team_threads(plan.team, plan.threads);
  const double vectors = std::ceil(task.columns / (lanes * plan.vector));
  const double a_row = kRow + kRowVector * vectors;
  const int registers = kRowRegisters + kRowVectorRegisters * kept * plan.vector / 8;
  // All that fit, unless the grid is no larger than the plan says.
  const int fit =
      std::min(device.threads / plan.threads, device.registers / (registers * plan.threads));
  const int blocks = plan.persistent ? plan.blocks_per_sm() : std::max(plan.blocks_per_sm(), fit);
  return {.threads = plan.threads,
          .shared_bytes = shared_bytes + 1024,
          .registers = registers,
          .blocks_per_sm = blocks,
          .grid = plan.grid(task.rows, device.multiprocessors),
          .units = double(task.rows),
          .units_at_once = double(plan.rows_at_once()),
          .unit_in_flight = bytes / task.rows * device.latency / a_row,
          .start_seconds = 0,  // others work meanwhile
          .finish_seconds = kFirstRowVector * vectors,
          .slowdown = plan.persistent ? kRowsByTurns : 1};
}
Footprint measure(const NormTask& task, const NormPlan& plan, const DeviceInfo& device) {
  return measure_rows(task, plan, plan.shared_bytes(task.columns), plan.kept,
                      norm_bytes(task.op, task.rows, task.columns), device);
}
Footprint measure(const SoftmaxTask& task, const SoftmaxPlan& plan, const DeviceInfo& device) {
  return measure_rows(task, plan, plan.shared_bytes(task.columns), plan.kept,
                      softmax_bytes(task.op, task.rows, task.columns), device);
}
Footprint measure(const ReductionTask& task, const ReductionPlan& plan, const DeviceInfo& device) {
  return measure_rows(task, plan, plan.shared_bytes(), 1,
                      reduction_bytes(task.op, task.rows, task.columns), device);
}

// A thread takes `bytes` of loads at once.
template <class Plan>
Footprint measure_flat(const Plan& plan, int grid, double units, int held, double bytes) {
  return {.threads = plan.threads,
          .shared_bytes = 0,
          .registers = kBaseRegisters - 8 + held,
          .blocks_per_sm = plan.blocks_per_sm(),
          .grid = grid,
          .units = std::max(units, 1.0),
          .units_at_once = double(plan.threads),
          .unit_in_flight = bytes,
          .unit_seconds = kNextGroup};
}
Footprint measure(const ElementwiseTask& task, const ElementwisePlan& plan,
                  const DeviceInfo& device) {
  double element = 0;
  for (int i = 0; i < task.op.inputs; ++i) element += bytes_of(task.op.in[i]);
  return measure_flat(plan, plan.grid(task.rows, task.columns, device.multiprocessors),
                      double(plan.vectors(task.rows, task.columns)) / plan.unroll,
                      task.op.inputs * plan.vector * plan.unroll,
                      element * plan.vector * plan.unroll);
}
Footprint measure(const EmbeddingTask& task, const EmbeddingPlan& plan, const DeviceInfo& device) {
  return measure_flat(plan, plan.grid(task.count, task.width, device.multiprocessors),
                      double(plan.vectors(task.count, task.width)), plan.vector,
                      plan.vector * bytes_of(task.op.table));
}
Footprint measure(const SamplingTask& task, const SamplingPlan& plan, const DeviceInfo& device) {
  return measure_flat(plan, plan.grid(task.vocab, device.multiprocessors),
                      divide_up(task.vocab, plan.vector), plan.vector,
                      plan.vector * bytes_of(task.op.logits));
}

const char* family_reason(const GemvTask& task, const GemvPlan& plan, const DeviceInfo& device) {
  if (const char* reason = plan.why_illegal(task.op, task.k, device.max_shared_bytes))
    return reason;
  if (plan.ring == Ring::bulk_copy && !device.bulk_copies) return "bulk copies need sm_90";
  if (plan.ring == Ring::async_copy && !device.async_copies)
    return "asynchronous copies need sm_80";
  return nullptr;
}
const char* family_reason(const GemmTask& task, const GemmPlan& plan, const DeviceInfo& device) {
  return plan.why_illegal(task.op, task.shape, device.max_shared_bytes);
}
const char* family_reason(const MmaGemmTask& task, const MmaGemmPlan& plan,
                          const DeviceInfo& device) {
  if (plan.tile == Tile::wgmma && !device.warpgroups) return "wgmma needs sm_90a";
  return plan.why_illegal(task.op, task.shape, device.max_shared_bytes);
}
const char* family_reason(const TmaGemmTask& task, const TmaGemmPlan& plan,
                          const DeviceInfo& device) {
  if (!device.warpgroups) return "the copy engine's tiles need sm_90a";
  const char* const reason = plan.why_illegal(task.op, task.shape, device.max_shared_bytes);
  if (reason != nullptr || plan.cluster_k == 1) return reason;
  if (plan.blocks(task.op, task.shape) / plan.cluster_k >= device.multiprocessors)
    return "whole tiles are enough work for all multiprocessors";
  return nullptr;
}
const char* family_reason(const LibraryTask& task, const LibraryPlan&, const DeviceInfo&) {
  if (const char* reason = task.op.why_illegal()) return reason;
  return task.shape.why_illegal(task.op);
}
const char* family_reason(const PrefillAttentionTask& task, const PrefillAttentionPlan& plan,
                          const DeviceInfo& device) {
  if (const char* reason = task.append_plan.why_illegal(task.append)) return reason;
  if (plan.tile == Tile::wgmma && !device.warpgroups) return "wgmma needs sm_90a";
  return plan.why_illegal(task.op, device.max_shared_bytes);
}
const char* family_reason(const QkvAttentionTask& task, const QkvAttentionPlan& plan,
                          const DeviceInfo& device) {
  if (!device.warpgroups && device.sm > 0) return "the copy engine's tiles need sm_90a";
  if (const char* reason =
          why_illegal(task.op, plan.product(), task.shape, device.max_shared_bytes))
    return reason;
  return why_illegal(Implementation<PrefillAttentionTask>{task.attention, plan.attention()},
                     device);
}
const char* family_reason(const AttentionTask& task, const AttentionPlan& plan,
                          const DeviceInfo& device) {
  return plan.why_illegal(task.op, device.max_shared_bytes);
}
const char* family_reason(const NormTask& task, const NormPlan& plan, const DeviceInfo& device) {
  return plan.why_illegal(task.op, task.columns, device.max_shared_bytes);
}
const char* family_reason(const SoftmaxTask& task, const SoftmaxPlan& plan,
                          const DeviceInfo& device) {
  return plan.why_illegal(task.op, task.columns, device.max_shared_bytes);
}
const char* family_reason(const ReductionTask& task, const ReductionPlan& plan, const DeviceInfo&) {
  return plan.why_illegal(task.op);
}
const char* family_reason(const ElementwiseTask& task, const ElementwisePlan& plan,
                          const DeviceInfo&) {
  return plan.why_illegal(task.op, task.rows, task.columns);
}
const char* family_reason(const EmbeddingTask& task, const EmbeddingPlan& plan, const DeviceInfo&) {
  return plan.why_illegal(task.op, task.count, task.width);
}
const char* family_reason(const SamplingTask& task, const SamplingPlan& plan, const DeviceInfo&) {
  return plan.why_illegal(task.op);
}

// What the kernel promises the compiler must exist on an SM.
const char* device_reason(const Footprint& need, const DeviceInfo& device) {
  if (need.threads > kMaxThreads || need.threads * need.blocks_per_sm > device.threads)
    return "more resident threads than an SM has";
  if (need.blocks_per_sm > device.blocks) return "more resident blocks than an SM has";
  if (need.blocks_per_sm * need.threads * need.registers > device.registers)
    return "more registers than an SM has for the resident threads";
  if (need.shared_bytes > device.max_shared_bytes) return "too much shared memory";
  return nullptr;
}

}  // namespace

const char* why_illegal(const Choice& choice, const DeviceInfo& device) {
  return std::visit(
      [&](const auto& made) {
        const char* reason = family_reason(made.task, made.plan, device);
        return reason ? reason : device_reason(measure(made.task, made.plan, device), device);
      },
      choice);
}

Footprint footprint(const Choice& choice, const DeviceInfo& device) {
  return std::visit([&](const auto& made) { return measure(made.task, made.plan, device); },
                    choice);
}

namespace {

double bytes(const GemvTask& t) { return gemv_bytes(t.op, t.n, t.k); }
double bytes(const GemmTask& t) { return gemm_bytes(t.op, t.shape); }
double bytes(const MmaGemmTask& t) { return gemm_bytes(t.op, t.shape); }
double bytes(const TmaGemmTask& t) { return gemm_bytes(t.op, t.shape); }
double bytes(const LibraryTask& t) { return gemm_bytes(t.op, t.shape); }
double append_bytes(const PrefillAttentionTask& t) {
  return rope_append_bytes(t.append, t.new_tokens, t.kv_heads * t.op.group, t.kv_heads);
}
double bytes(const PrefillAttentionTask& t) {
  const double cached = 2.0 * (t.tokens + t.new_tokens) * t.kv_heads * t.op.head_dim;
  return cached * bytes_of(t.op.type) + 2 * append_bytes(t);
}
double bytes(const QkvAttentionTask& t) {
  return gemm_bytes(t.op.product, t.shape) + bytes(t.attention) - append_bytes(t.attention);
}
double bytes(const AttentionTask& t) { return attention_bytes(t.op, t.kv_heads, t.tokens); }
double bytes(const NormTask& t) { return norm_bytes(t.op, t.rows, t.columns); }
double bytes(const SoftmaxTask& t) { return softmax_bytes(t.op, t.rows, t.columns); }
double bytes(const ReductionTask& t) { return reduction_bytes(t.op, t.rows, t.columns); }
double bytes(const ElementwiseTask& t) {
  return elementwise_bytes(t.op, t.full_inputs, t.rows, t.columns);
}
double bytes(const EmbeddingTask& t) { return embedding_bytes(t.op, t.count, t.width); }
double bytes(const SamplingTask& t) { return sampling_bytes(t.op, t.vocab); }

double flops(const GemvTask& t) { return gemv_flops(t.op, t.n, t.k); }
double flops(const GemmTask& t) { return gemm_flops(t.op, t.shape); }
double flops(const MmaGemmTask& t) { return gemm_flops(t.op, t.shape); }
double flops(const TmaGemmTask& t) { return gemm_flops(t.op, t.shape); }
double flops(const LibraryTask& t) { return gemm_flops(t.op, t.shape); }
double flops(const PrefillAttentionTask& t) {
  return prefill_flops(t.op, t.kv_heads * t.op.group, t.new_tokens, t.tokens, t.window);
}
double flops(const QkvAttentionTask& t) {
  return gemm_flops(t.op.product, t.shape) + flops(t.attention);
}
double flops(const AttentionTask& t) { return attention_flops(t.op, t.kv_heads, t.tokens); }
double flops(const NormTask& t) { return norm_flops(t.op, t.rows, t.columns); }
double flops(const SoftmaxTask& t) { return softmax_flops(t.op, t.rows, t.columns); }
double flops(const ReductionTask& t) { return reduction_flops(t.op, t.rows, t.columns); }
double flops(const ElementwiseTask& t) { return elementwise_flops(t.ops, t.rows, t.columns); }
double flops(const EmbeddingTask& t) { return embedding_flops(t.op, t.count, t.width); }
double flops(const SamplingTask& t) { return sampling_flops(t.op, t.vocab); }

}  // namespace

double bytes_of(const Choice& choice) {
  return std::visit([](const auto& made) { return bytes(made.task); }, choice);
}
double flops_of(const Choice& choice) {
  return std::visit([](const auto& made) { return flops(made.task); }, choice);
}

}  // namespace ac
