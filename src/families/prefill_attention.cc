#include "families/prefill_attention.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "kernels/row_codes.h"

namespace ac {

using namespace kernels;

Match<PrefillAttentionTask> PrefillAttentionTask::match(const Body& body) {
  const auto attention = find_attention(body);
  if (const auto* why = std::get_if<std::string>(&attention)) return *why;
  const auto& found = std::get<FoundAttention>(attention);
  const AttentionOperands& operands = found.operands;
  if (*body.head_pitch(operands.k) != *body.head_pitch(operands.v))
    return "keys and values differ in pitch";
  if (body[operands.attend].number("scale") <= 0) return "scores are not scaled by more than 0";
  PrefillAttentionTask task;
  task.op = {.type = found.type,
             .head_dim = found.head_dim,
             .group = found.group,
             .softcap = found.softcap,
             .fp8 = found.fp8};
  task.append = {.type = found.type,
                 .head_dim = found.head_dim,
                 .qk_norm = operands.q_norm >= 0,
                 .rotary = found.rotary,
                 .interleaved = found.interleaved,
                 .fp8 = found.fp8};
  task.kv_heads = found.kv_heads;
  task.new_tokens = found.new_tokens;
  task.tokens = found.seen;
  task.window = found.window;
  return Matched<PrefillAttentionTask>{task, operands};
}

std::vector<PrefillAttentionPlan> PrefillAttentionTask::plans() const {
  std::vector<PrefillAttentionPlan> plans;
  for (const int groups : {1, 2, 3, 4})
    for (const int key_tile : {64, 128})
      for (const int stages : {2, 3, 4})
        for (const bool keep : {true, false})
          for (const int resident : {1, 2, 3})
            plans.push_back({.tile = Tile::wgmma,
                             .query_tile = 64 * groups,
                             .key_tile = key_tile,
                             .warps = 4 * groups,
                             .stages = stages,
                             .keep_queries = keep,
                             .resident = resident});
  for (const int warps : {1, 2, 4, 8})
    for (const int queries : {1, 2, 4, 8, 16, 32})  // of a warp
      for (const int key_tile : {16, 32, 64, 128})
        for (const int resident : {1, 2, 3}) {
          plans.push_back({.tile = Tile::scalar,
                           .query_tile = warps * queries,
                           .key_tile = key_tile,
                           .warps = warps,
                           .stages = 1,
                           .keep_queries = false,
                           .resident = resident});
          for (const int stages : {2, 3})
            for (const bool keep : {true, false})
              plans.push_back({.tile = Tile::mma,
                               .query_tile = warps * queries,
                               .key_tile = key_tile,
                               .warps = warps,
                               .stages = stages,
                               .keep_queries = keep,
                               .resident = resident});
        }
  // For so few queries that there is no warp of them for each multiprocessor's scheduler.
  for (const int splits : {2, 4, 8})
    for (const int teams : {1, 2})
      for (const int queries : {16, 32})  // of a warp
        for (const int keys : {16, 32, 64})
          for (const int stages : {2, 3})
            for (const bool keep : {true, false})
              plans.push_back({.tile = Tile::mma,
                               .query_tile = teams * queries,
                               .key_tile = splits * keys,
                               .warps = splits * teams,
                               .stages = stages,
                               .keep_queries = keep,
                               .resident = 1,
                               .splits = splits});
  return plans;
}

const char* PrefillAttentionTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (const char* reason = append_plan.why_illegal(append)) return reason;
  if (plan.tile == Tile::wgmma && !device.warpgroups) return "wgmma needs sm_90a";
  return plan.why_illegal(op, device.max_shared_bytes);
}

namespace {

// The share of the time in which multiprocessors have work, since later queries see more keys:
// blocks with the most come first, and each goes to the one that is done first.
double balance(const PrefillAttentionTask& task, const PrefillAttentionPlan& plan,
               const DeviceInfo& device) {
  const int tiles = prefill_tiles(plan, std::max(1, task.new_tokens)), heads = task.heads();
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

double attention_rate(const PrefillAttentionTask& task, const PrefillAttentionPlan& plan,
                      const DeviceInfo& device) {
  const Calibration::PrefillAttention& fit = device.constants().prefill_attention;
  const Calibration::Gemm& gemm = device.constants().gemm;
  const double queries = plan.warp_queries(), keys = plan.warp_keys();
  switch (plan.tile) {
    case Tile::scalar:
      return device.flops * gemm.plain_efficiency * queries / (queries + fit.scalar_queries_half);
    case Tile::mma:
      return device.tensor_flops * gemm.mma_efficiency * queries /
             (queries + fit.mma_queries_half) * keys / (keys + fit.mma_keys_half);
    case Tile::wgmma:
      break;
  }
  const int fit_in = device.shared_bytes / (plan.shared_bytes(task.op) + 2048);
  const double shared_by = std::min(plan.query_tile, 128), dim = task.op.head_dim;
  const double groups =
      std::min(plan.warps / 4.0 * std::clamp(fit_in, 1, plan.resident), std::max(2.0, 256 / dim));
  return device.tensor_flops * fit.wgmma_peak * groups / (groups + fit.wgmma_groups_half) * keys /
         (keys + fit.wgmma_keys_half) * shared_by / (shared_by + fit.wgmma_queries_half) * dim /
         (dim + fit.wgmma_dim_half);
}

// A warp by itself waits for each of its products.
double warps_rate(const PrefillAttentionPlan& plan, double blocks, const DeviceInfo& device) {
  const Calibration::PrefillAttention& fit = device.constants().prefill_attention;
  if (plan.tile == Tile::scalar) return device.flops;
  const double warps =
      std::min(blocks, double(plan.resident) * device.multiprocessors) * plan.warps;
  const double share = plan.tile == Tile::wgmma ? fit.wgmma_alone : fit.mma_alone;
  return warps * share * device.tensor_flops / device.multiprocessors;
}

}  // namespace

Footprint PrefillAttentionTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const double blocks = double(heads()) * prefill_tiles(plan, std::max(1, new_tokens));
  int registers = plan.registers(op);
  if (plan.tile == Tile::scalar) registers = 40 + plan.warp_queries() * divide_up(op.head_dim, 32);
  if (plan.tile == Tile::wgmma)  // of all threads in the mean
    registers = (registers * plan.warps + plan.loader_registers * 4) / (plan.warps + 4);
  return {.threads = plan.threads(),
          .shared_bytes = plan.shared_bytes(op),
          .registers = registers,
          .blocks_per_sm = plan.resident,
          .grid = static_cast<long long>(blocks),
          .units = blocks,
          .units_at_once = 1,
          .unit_in_flight = 2.0 * plan.keys_bytes(op) * plan.stages,
          .unit_seconds = device.constants().gemm.next_tile,
          .finish_seconds = device.launch,  // of the kernel that appends
          .flops = std::min(attention_rate(*this, plan, device) * balance(*this, plan, device),
                            warps_rate(plan, blocks, device))};
}

double PrefillAttentionTask::bytes() const {
  const double cached = 2.0 * (tokens + new_tokens) * kv_heads;
  return cached * cached_row_bytes(op.fp8, op.type, op.head_dim) + 2 * append_bytes();
}

void PrefillAttentionTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}{}x{}/{}/{}/{}", name_of(plan.tile), plan.query_tile, plan.key_tile, plan.warps,
         plan.stages, plan.resident)
      .unless("splits", plan.splits, 1, "/split{}", plan.splits)
      .unless("keep_queries", plan.keep_queries, false, "/keep");
}

void PrefillAttentionTask::add_attention(const Lowering& to, const Plan& plan, const Operands& o,
                                         Generated& out) const {
  const Node& attend = to[o.attend];
  const Dim tokens = tokens_of(to, o.attend);
  const CacheOf cache = cache_of(to, o.attend);
  KernelOf<PrefillAttentionParams> of(to, out, "prefill_attention", op, plan);
  PrefillAttentionParams& p = of.params;
  p.q_pitch = heads() * op.head_dim;
  of.point(p.q, turned(to, o.attend, p.q_pitch));
  of.count(p.tokens, tokens);
  of.point(p.position, {.role = Buffer::Role::position});
  point_to_cache(of, cache, op.fp8);
  p.window = cache.window;
  p.scale = static_cast<float>(attend.number("scale"));
  p.softcap = static_cast<float>(attend.number("softcap"));
  of.point(p.out, o.attend);
  if (plan.tile == Tile::wgmma) {
    const auto map = [&](const TensorMap& field, const Buffer& buffer, const Count& rows,
                         std::int64_t columns, int box_rows) {
      of.map(field, buffer, {}, rows, columns, columns, box_rows,
             to.step.graph.type(o.attend).dtype);
    };
    const Count slots = std::int64_t{kv_heads} * cache.capacity;
    map(p.queries, turned(to, o.attend, p.q_pitch), count_of(tokens), p.q_pitch, plan.query_tile);
    map(p.keys, cache.keys, slots, op.head_dim, plan.key_tile);
    map(p.values, cache.values, slots, op.head_dim, plan.key_tile);
  }
  Count tiles = count_of(tokens);
  tiles.per = plan.query_tile;
  of.launch({heads(), tiles, 1}, plan.threads(), plan.shared_bytes(op));
}

Generated PrefillAttentionTask::lower(const Lowering& to, const Plan& plan,
                                      const Operands& o) const {
  const RopeAppendPlan& before = append_plan;
  const Body body = to.body();
  Generated out;
  KernelOf<RopeAppendParams> of(to, out, "rope_append", append, before);
  RopeAppendParams& p = of.params;
  of.point(p.q, o.q), of.point(p.k, o.k), of.point(p.v, o.v);
  p.q_pitch = *body.head_pitch(o.q), p.kv_pitch = *body.head_pitch(o.k);
  const Dim tokens = tokens_of(to, o.attend);
  of.count(p.tokens, tokens);
  fill_append(of, to, heads(), kv_heads, op.head_dim, op.fp8, o);
  const Dim units = tokens * Dim(before.groups(append, p.heads + 2 * p.kv_heads));
  of.launch({to.blocks(units, before.warps(), before.persistent, before.blocks_per_sm()), 1, 1},
            before.threads, 0);
  add_attention(to, plan, o, out);
  return out;
}

}  // namespace ac
