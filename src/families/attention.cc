#include "families/attention.h"

#include <algorithm>
#include <cmath>

namespace ac {

using namespace kernels;

Match<AttentionTask> AttentionTask::match(const Body& body) {
  const auto attention = find_attention(body);
  if (const auto* why = std::get_if<std::string>(&attention)) return *why;
  const auto& found = std::get<FoundAttention>(attention);
  if (body.graph().type(found.operands.attend).shape[0] != Dim(1)) return "more than one token";
  if (!found.dense) return "query, key or value is no contiguous activation";
  const AttentionTask task{{.type = found.type,
                            .head_dim = found.head_dim,
                            .group = found.group,
                            .qk_norm = found.operands.q_norm >= 0,
                            .rotary = found.rotary,
                            .interleaved = found.interleaved,
                            .window = found.window > 0,
                            .softcap = found.softcap,
                            .fp8 = found.fp8},
                           found.kv_heads,
                           found.seen};
  return Matched<AttentionTask>{task, found.operands};
}

std::vector<AttentionPlan> AttentionTask::plans() const {
  std::vector<AttentionPlan> plans;
  for (const Tile tile : {Tile::mma, Tile::scalar})
    for (const int threads : {64, 128, 256, 384, 512})
      for (const int splits : {1, 2, 4, 8, 16, 33, 66, 132})
        for (const int min_tiles : {1, 2, 4})
          for (const int resident : {256, 512, 1024})
            plans.push_back({.tile = tile,
                             .threads = threads,
                             .splits = splits,
                             .min_tiles = min_tiles,
                             .resident = resident});
  return plans;
}

Footprint AttentionTask::footprint(const Plan& plan, const DeviceInfo& device) const {
  const Calibration::Gemv& warp = device.constants().gemv;
  const Calibration::Attention& fit = device.constants().attention;
  const int tile = plan.tile_tokens(op);
  const double tiles = divide_up(tokens + 1, tile);
  // No more splits than give each warp its tiles; the others have nothing to do.
  const double splits =
      std::clamp(std::ceil(tiles / (plan.min_tiles * plan.warps())), 1.0, double(plan.splits));
  const bool scalar = plan.tile == Tile::scalar;
  return {.threads = plan.threads,
          .shared_bytes =
              plan.shared_bytes(op) + 64 + (3 * plan.warps() + 2 + plan.splits) * op.group * 4,
          .registers = scalar ? 40 + op.group * op.head_dim / 32 : 96,
          .blocks_per_sm = plan.blocks_per_sm(),
          .grid = static_cast<long long>(splits) * kv_heads,
          .units = tiles * kv_heads,
          .units_at_once = double(plan.warps()),
          .unit_in_flight = 2.0 * tile * cached_row_bytes(op.fp8, op.type, op.head_dim),
          .unit_seconds = scalar ? fit.scalar_step : warp.next_shared_group,
          .finish_seconds = splits > 1 ? fit.combine + splits * warp.next_group : fit.combine / 2};
}

Extent AttentionTask::extent(const Plan& plan) const {
  const std::int64_t tile = plan.tile_tokens(op);
  const std::int64_t round = tile * plan.splits * plan.warps() * plan.min_tiles;
  const bool is_long = 2 * round * 2 * op.head_dim * kFewHeads > kMostCached;
  return {.key_tile = tile, .round = round, .kv_heads = is_long ? 1 : kFewHeads};
}

void AttentionTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}{}x{}/min{}/{}", name_of(plan.tile), plan.threads, plan.splits, plan.min_tiles,
         plan.resident);
}

Generated AttentionTask::lower(const Lowering& to, const Plan& plan, const Operands& o) const {
  Generated out;
  KernelOf<AttentionParams> of(to, out, "attention", op, plan);
  AttentionParams& p = of.params;
  const Node& attend = to[o.attend];
  const CacheOf cache = cache_of(to, o.attend);
  of.point(p.q, o.q), of.point(p.k, o.k), of.point(p.v, o.v);
  fill_norms(of, to, o);
  if (o.rope >= 0) {
    of.point(p.rope, {.role = Buffer::Role::rope_table,
                      .node = to[o.rope].inputs[2],
                      .scale = to[o.rope].number("scale")});
    p.rope_pitch = op.rotary;
  }
  of.point(p.position, {.role = Buffer::Role::position});
  p.position_lag = 1;  // the kernels before may still run those of the last token
  point_to_cache(of, cache, op.fp8);
  p.window = cache.window;
  p.scale = static_cast<float>(attend.number("scale"));
  p.softcap = static_cast<float>(attend.number("softcap"));
  of.point(p.out, o.attend);
  of.point(p.partial, workspace(4ll * op.partial_floats(kv_heads, plan.splits)));
  of.point(p.finished, counters(4ll * kv_heads));
  // Blocks of several rows take splits in turn: starting all, of which few have work where contexts
  // are short, takes longer. No more are started than run at once, but one for each head of each
  // row.
  const int all_at_once =
      std::max(1, to.setting.multiprocessors * plan.blocks_per_sm() / (kv_heads * to.setting.rows));
  of.launch({kv_heads, to.setting.rows > 1 ? std::min(plan.splits, all_at_once) : plan.splits, 1},
            plan.threads, plan.shared_bytes(op));
  return out;
}

}  // namespace ac
