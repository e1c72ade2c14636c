#include "admit/extent.h"

#include <algorithm>

namespace ac {
namespace {

constexpr std::int64_t kFewHeads = 2;

Extent extent_of(const Implementation<GemvTask>& made) {
  const auto& [task, plan] = made;
  const int block = plan.groups_per_block() * plan.outputs_per_group(task.op);
  // Rows that share a scale, and more.
  const int scaled = kernels::divide_up(kernels::blocks_of(task.op.format).rows, block);
  return {.block = block, .at_once = std::max(plan.blocks_per_sm() * kTrialProcessors, scaled)};
}
Extent extent_of(const Implementation<GemmTask>& made) {
  return {.block = made.plan.tile_n, .tokens = made.plan.tile_m, .group = made.plan.group_m};
}
Extent extent_of(const Implementation<MmaGemmTask>& made) {
  return {.block = made.plan.tile_n, .tokens = made.plan.tile_m, .group = made.plan.group_m};
}
Extent extent_of(const Implementation<TmaGemmTask>& made) {
  const kernels::TmaGemmPlan& plan = made.plan;
  return {.block = plan.tile_n,
          .tokens = plan.tile_m,
          .group = std::int64_t{plan.group_m} * plan.cluster_m};
}
Extent extent_of(const Implementation<LibraryTask>&) { return {.block = 32}; }
Extent extent_of(const Implementation<AttentionTask>& made) {
  const auto& [task, plan] = made;
  const std::int64_t tile = plan.tile_tokens(task.op);
  const std::int64_t round = tile * plan.splits * plan.warps() * plan.min_tiles;
  const bool is_long = 2 * round * 2 * task.op.head_dim * kFewHeads > kMostCached;
  return {.key_tile = tile, .round = round, .kv_heads = is_long ? 1 : kFewHeads};
}
Extent extent_of(const kernels::PrefillAttentionPlan& plan) {
  return {.tokens = plan.query_tile,
          .key_tile = plan.key_tile,
          .round = std::int64_t{plan.stages} * plan.key_tile,
          .kv_heads = kFewHeads};
}
Extent extent_of(const Implementation<PrefillAttentionTask>& made) { return extent_of(made.plan); }
Extent extent_of(const Implementation<QkvAttentionTask>& made) {
  Extent extent = extent_of(made.plan.attention());
  extent.tokens = std::max<std::int64_t>(made.plan.tile_m, extent.tokens);
  extent.group = std::int64_t{made.plan.group_m} * made.plan.cluster_m;
  // A tile's and one more.
  extent.kv_heads = made.plan.tile_n / made.task.op.append.head_dim + 1;
  return extent;
}
// One row or element at a time, each by itself.
Extent extent_of(const Implementation<NormTask>&) { return {}; }
Extent extent_of(const Implementation<SoftmaxTask>&) { return {}; }
Extent extent_of(const Implementation<ReductionTask>&) { return {}; }
Extent extent_of(const Implementation<ElementwiseTask>&) { return {}; }
Extent extent_of(const Implementation<EmbeddingTask>&) { return {}; }
Extent extent_of(const Implementation<SamplingTask>&) { return {}; }

}  // namespace

Extent extent_of(const Choice& choice) {
  return std::visit([](const auto& made) { return extent_of(made); }, choice);
}

}  // namespace ac
