// Each family's launches: what its parameter struct is filled with, and the shape of its grid.
#include "generate/make.h"

namespace ac {
namespace {

using namespace kernels;

using Context = MakeContext;

// ---- products

template <Format format>
Generated make_gemv(const Context& c, const Implementation<GemvTask>& made,
                    const ProductOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("gemv", "kernels/gemv.cuh", "AC_GEMV_KERNEL", "GemvOp",
                             op_text(c.choice), "GemvPlan", plan_text(c.choice))};
  ParamsOf<GemvParamsOf<format>> of(c.step, out);
  auto& p = of.params;
  for (int i = 0; i < task.op.matrices; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if constexpr (format != Format::plain)
      of.point(p.scales[i], buffer_of(c.step, o.weight[at], 1));
    of.point(p.matrix[i].weight, o.weight[at]);
    if (task.op.bias) of.point(p.matrix[i].bias, o.bias[at]);
    if (o.y[at] >= 0) of.point(p.matrix[i].y, o.y[at]);
    p.matrix[i].rows = number(c.shape(o.weight[at])[0]);
  }
  p.k = p.pitch = task.k;
  of.point(p.x, o.x);
  if (o.norm >= 0) {
    of.point(p.norm_weight, c[o.norm].inputs[1]);
    p.norm_eps = static_cast<float>(c[o.norm].number("eps"));
    p.norm_offset = static_cast<float>(c[o.norm].number("weight_offset"));
  }
  p.scale = static_cast<float>(o.scale);
  p.softcap = static_cast<float>(o.softcap);
  if (task.op.residual) of.point(p.residual, o.residual);
  const int grid = plan.grid(task.op, task.n, c.setting.multiprocessors);
  if (task.op.argmax) {
    of.point(p.block_best, workspace(8 * grid));
    of.point(p.finished_blocks, counters(4));
    of.point(p.best_row, {.role = Buffer::Role::token});
  }
  out.launches = {shaped(of.finish(), out.sources[0], {grid, 1, 1}, plan.threads,
                         plan.shared_bytes(task.op, task.k))};
  return out;
}

Generated make(const Context& c, const Implementation<GemvTask>& made, const ProductOperands& o) {
  switch (made.task.op.format) {
    case Format::plain:
      return make_gemv<Format::plain>(c, made, o);
    case Format::fp8_block:
      return make_gemv<Format::fp8_block>(c, made, o);
  }
  AC_UNREACHABLE();
}

template <class Params>
void fill(ParamsOf<Params>& of, GemmParams& p, const Context& c, const GemmOp& op,
          const GemmShape& shape, const ProductOperands& o) {
  for (int i = 0; i < op.matrices; ++i) {
    const auto at = static_cast<std::size_t>(i);
    of.point(p.matrix[i].weight, o.weight[at]);
    if (op.bias) of.point(p.matrix[i].bias, o.bias[at]);
    p.matrix[i].rows = shape.rows[i];
    p.matrix[i].y_pitch = shape.rows[i];
    if (o.y[at] >= 0) of.point(p.matrix[i].y, o.y[at]);
    if (op.residual) of.point(p.matrix[i].residual, o.residual);
  }
  of.count(p.m, rows_of(c.shape(o.x)));
  p.k = p.pitch = shape.k;
  of.point(p.x, o.x);
  p.x_pitch = static_cast<int>(pitch_of(c, o.x));
  p.scale = static_cast<float>(o.scale);
  p.softcap = static_cast<float>(o.softcap);
}

// Tiles of all tokens and matrices.
Count tiles_of(const Context& c, const GemmOp& op, const GemmShape& shape, int tile_m, int tile_n,
               NodeId x) {
  Count tiles = count_of(rows_of(c.shape(x)));
  tiles.per = tile_m;
  tiles.times = gemm_tiles_n(op, shape, tile_n);
  return tiles;
}

Generated make(const Context& c, const Implementation<GemmTask>& made, const ProductOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("gemm", "kernels/gemm.cuh", "AC_GEMM_KERNEL", "GemmOp",
                             op_text(c.choice), "GemmPlan", plan_text(c.choice))};
  ParamsOf<GemmParams> of(c.step, out);
  fill(of, of.params, c, task.op, task.shape, o);
  out.launches = {shaped(of.finish(), out.sources[0],
                         {tiles_of(c, task.op, task.shape, plan.tile_m, plan.tile_n, o.x), 1, 1},
                         plan.threads(), plan.shared_bytes())};
  return out;
}

Generated make(const Context& c, const Implementation<MmaGemmTask>& made,
               const ProductOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("mma_gemm", "kernels/mma_gemm.cuh", "AC_MMA_GEMM_KERNEL", "GemmOp",
                             op_text(c.choice), "MmaGemmPlan", plan_text(c.choice))};
  ParamsOf<GemmParams> of(c.step, out);
  GemmParams& p = of.params;
  fill(of, p, c, task.op, task.shape, o);
  const Count tiles = tiles_of(c, task.op, task.shape, plan.tile_m, plan.tile_n, o.x);
  if (plan.split > 1) {
    of.point(p.partial, workspace(scaled(tiles, 4ll * plan.split * plan.tile_m * plan.tile_n)));
    of.point(p.finished, counters(scaled(tiles, 4)));
  }
  out.launches = {shaped(of.finish(), out.sources[0], {tiles, plan.split, 1}, plan.threads(),
                         plan.shared_bytes())};
  return out;
}

// Returns how many blocks there are.
template <class Params>
Count fill(ParamsOf<Params>& of, TmaGemmParams& p, const Context& c, const GemmOp& op,
           const GemmShape& shape, const TmaGemmPlan& plan, const ProductOperands& o) {
  fill(of, p.gemm, c, op, shape, o);
  of.map(p.x, o.x, rows_of(c.shape(o.x)), shape.k, pitch_of(c, o.x), plan.box_m());
  for (int i = 0; i < op.matrices; ++i)
    of.map(p.weight[i], o.weight[static_cast<std::size_t>(i)], Dim(shape.rows[i]), shape.k, shape.k,
           plan.box_n(op));
  Count blocks = tiles_of(c, op, shape, plan.tile_m * plan.cluster_m, plan.tile_n, o.x);
  blocks.times = std::int64_t{plan.across(op, shape)} * plan.cluster();
  blocks.at_most = plan.most_blocks(c.setting.multiprocessors);
  return blocks;
}

Generated make(const Context& c, const Implementation<TmaGemmTask>& made,
               const ProductOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("tma_gemm", "kernels/tma_gemm.cuh", "AC_TMA_GEMM_KERNEL", "GemmOp",
                             op_text(c.choice), "TmaGemmPlan", plan_text(c.choice))};
  ParamsOf<TmaGemmParams> of(c.step, out);
  const Count blocks = fill(of, of.params, c, task.op, task.shape, plan, o);
  out.launches = {
      shaped(of.finish(), out.sources[0], {blocks, 1, 1}, plan.threads(), plan.shared_bytes())};
  return out;
}

Generated make(const Context& c, const Implementation<LibraryTask>& made,
               const ProductOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(task.op.matrices); ++i) {
    ParamsOf<ProductParams> of(c.step, out);
    ProductParams& p = of.params;
    of.point(p.x, o.x);
    of.point(p.weight, o.weight[i]);
    if (task.op.bias) of.point(p.bias, o.bias[i]);
    if (task.op.residual) of.point(p.residual, o.residual);
    of.point(p.y, o.y[i]);
    of.count(p.m, rows_of(c.shape(o.x)));
    Launch& launch = out.launches.emplace_back(of.finish());
    launch.product = Product{.dtype = c.step.graph.type(o.x).dtype,
                             .n = task.shape.rows[i],
                             .k = task.shape.k,
                             .x_pitch = pitch_of(c, o.x),
                             .bias = task.op.bias,
                             .residual = task.op.residual,
                             .scale = o.scale,
                             .algorithm = plan.algorithm,
                             .tuned_m = plan.chosen_for.m,
                             .tuned_n = plan.chosen_for.rows[i]};
    launch.kernel = name_of(*launch.product);
  }
  return out;
}

// ---- attention

struct CacheOf {
  Buffer keys, values;
  int capacity, window;
};

CacheOf cache_of(const Context& c, NodeId attend) {
  const std::int64_t state = c[attend].integer("state");
  const auto at = static_cast<std::size_t>(state);
  return {{.role = Buffer::Role::state, .state = state, .tensor = kKeys},
          {.role = Buffer::Role::state, .state = state, .tensor = kValues},
          static_cast<int>(c.setting.slots.at(at)),
          static_cast<int>(c.step.states[at].window)};
}

template <class Params>
void fill_norms(ParamsOf<Params>& of, const Context& c, const AttentionOperands& o) {
  if (o.q_norm < 0) return;
  Params& p = of.params;
  of.point(p.q_norm, c[o.q_norm].inputs[1]);
  of.point(p.k_norm, c[o.k_norm].inputs[1]);
  p.norm_eps = static_cast<float>(c[o.q_norm].number("eps"));
  p.norm_offset = static_cast<float>(c[o.q_norm].number("weight_offset"));
}

Generated make(const Context& c, const Implementation<AttentionTask>& made,
               const AttentionOperands& o) {
  const auto& [task, plan] = made;
  Generated out;
  out.sources = {instantiate("attention", "kernels/attention.cuh", "AC_ATTENTION_KERNEL",
                             "AttentionOp", op_text(c.choice), "AttentionPlan",
                             plan_text(c.choice))};
  ParamsOf<AttentionParams> of(c.step, out);
  AttentionParams& p = of.params;
  const Node& attend = c[o.attend];
  const CacheOf cache = cache_of(c, o.attend);
  of.point(p.q, o.q), of.point(p.k, o.k), of.point(p.v, o.v);
  fill_norms(of, c, o);
  if (o.rope >= 0) {
    of.point(p.rope, {.role = Buffer::Role::rope_table,
                      .node = c[o.rope].inputs[2],
                      .scale = c[o.rope].number("scale")});
    p.rope_pitch = task.op.rotary;
  }
  of.point(p.position, {.role = Buffer::Role::position});
  p.position_lag = 1;  // the kernels before may still run those of the last token
  of.point(p.k_cache, cache.keys), of.point(p.v_cache, cache.values);
  p.capacity = cache.capacity, p.window = cache.window;
  p.scale = static_cast<float>(attend.number("scale"));
  p.softcap = static_cast<float>(attend.number("softcap"));
  of.point(p.out, o.attend);
  of.point(p.partial, workspace(4ll * task.op.partial_floats(task.kv_heads, plan.splits)));
  of.point(p.finished, counters(4ll * task.kv_heads));
  out.launches = {shaped(of.finish(), out.sources[0], {task.kv_heads, plan.splits, 1}, plan.threads,
                         plan.shared_bytes(task.op))};
  return out;
}

Dim tokens_of(const Context& c, NodeId attend) { return c.shape(c[attend].inputs[0])[0]; }

// Queries on their way to attention.
Buffer turned(const Context& c, const PrefillAttentionTask& task, NodeId attend) {
  const std::int64_t head = bytes_of(c.step.graph.type(attend).dtype) * task.op.head_dim;
  return workspace(scaled(count_of(tokens_of(c, attend)), head * task.kv_heads * task.op.group));
}

// What any kernel needs that leaves queries as attention takes them, and appends keys and values.
template <class Params>
void fill_append(ParamsOf<Params>& of, const Context& c, const PrefillAttentionTask& task,
                 const AttentionOperands& o) {
  Params& p = of.params;
  const CacheOf cache = cache_of(c, o.attend);
  p.heads = task.kv_heads * task.op.group, p.kv_heads = task.kv_heads;
  fill_norms(of, c, o);
  p.rope_scale = 1;
  if (o.rope >= 0) {
    of.point(p.inv_freq, c[o.rope].inputs[2]);
    p.rope_scale = static_cast<float>(c[o.rope].number("scale"));
  }
  of.point(p.position, {.role = Buffer::Role::position});
  of.point(p.q_out, turned(c, task, o.attend));
  of.point(p.k_cache, cache.keys), of.point(p.v_cache, cache.values);
  p.capacity = cache.capacity;
}

// The launch that attends to what such a kernel has left.
void add_attention(const Context& c, const Implementation<PrefillAttentionTask>& made,
                   const AttentionOperands& o, Generated& out) {
  const auto& [task, plan] = made;
  const Node& attend = c[o.attend];
  const Dim tokens = tokens_of(c, o.attend);
  const int heads = task.kv_heads * task.op.group;
  const CacheOf cache = cache_of(c, o.attend);
  out.sources.push_back(instantiate("prefill_attention", "kernels/prefill_attention.cuh",
                                    "AC_PREFILL_ATTENTION_KERNEL", "PrefillAttentionOp",
                                    op_text(made), "PrefillAttentionPlan", plan_text(made)));
  ParamsOf<PrefillAttentionParams> of(c.step, out);
  PrefillAttentionParams& p = of.params;
  of.point(p.q, turned(c, task, o.attend));
  p.q_pitch = heads * task.op.head_dim;
  of.count(p.tokens, tokens);
  of.point(p.position, {.role = Buffer::Role::position});
  of.point(p.k_cache, cache.keys), of.point(p.v_cache, cache.values);
  p.capacity = cache.capacity, p.window = cache.window;
  p.scale = static_cast<float>(attend.number("scale"));
  p.softcap = static_cast<float>(attend.number("softcap"));
  of.point(p.out, o.attend);
  if (plan.tile == Tile::wgmma) {
    const auto map = [&](const TensorMap& field, const Buffer& buffer, const Count& rows,
                         std::int64_t columns, int box_rows) {
      of.map(field, buffer, {}, rows, columns, columns, box_rows,
             c.step.graph.type(o.attend).dtype);
    };
    const Count slots = std::int64_t{task.kv_heads} * cache.capacity;
    map(p.queries, turned(c, task, o.attend), count_of(tokens), p.q_pitch, plan.query_tile);
    map(p.keys, cache.keys, slots, task.op.head_dim, plan.key_tile);
    map(p.values, cache.values, slots, task.op.head_dim, plan.key_tile);
  }
  Count tiles = count_of(tokens);
  tiles.per = plan.query_tile;
  out.launches.push_back(shaped(of.finish(), out.sources.back(), {heads, tiles, 1}, plan.threads(),
                                plan.shared_bytes(task.op)));
}

Generated make(const Context& c, const Implementation<PrefillAttentionTask>& made,
               const AttentionOperands& o) {
  const PrefillAttentionTask& task = made.task;
  const RopeAppendPlan& plan = task.append_plan;
  const Body body = c.body();
  Generated out;
  out.sources = {instantiate("rope_append", "kernels/rope_append.cuh", "AC_ROPE_APPEND_KERNEL",
                             "RopeAppendOp", op_text(task.append), "RopeAppendPlan",
                             plan_text(plan))};
  ParamsOf<RopeAppendParams> of(c.step, out);
  RopeAppendParams& p = of.params;
  of.point(p.q, o.q), of.point(p.k, o.k), of.point(p.v, o.v);
  p.q_pitch = *head_pitch(body, o.q), p.kv_pitch = *head_pitch(body, o.k);
  const Dim tokens = tokens_of(c, o.attend);
  of.count(p.tokens, tokens);
  fill_append(of, c, task, o);
  const Dim units = tokens * Dim(plan.groups(task.append, p.heads + 2 * p.kv_heads));
  out.launches = {
      shaped(of.finish(), out.sources[0],
             {work(units, plan.warps(), plan.persistent, plan.blocks_per_sm(), c.setting), 1, 1},
             plan.threads, 0)};
  add_attention(c, made, o, out);
  return out;
}

Generated make(const Context& c, const Implementation<QkvAttentionTask>& made,
               const QkvAttentionOperands& o) {
  const auto& [task, plans] = made;
  const Implementation<TmaGemmTask> product{{task.op.product, task.shape}, plans.product()};
  const TmaGemmPlan& plan = product.plan;
  Generated out;
  out.sources = {instantiate("qkv_rope", "kernels/qkv_rope.cuh", "AC_QKV_ROPE_KERNEL", "QkvRopeOp",
                             op_text(c.choice), "TmaGemmPlan", plan_text(product))};
  ParamsOf<QkvRopeParams> of(c.step, out);
  const Count blocks = fill(of, of.params.product, c, task.op.product, task.shape, plan, o.product);
  fill_append(of, c, task.attention, o.attention);
  out.launches = {
      shaped(of.finish(), out.sources[0], {blocks, 1, 1}, plan.threads(), plan.shared_bytes())};
  add_attention(c, {task.attention, plans.attention()}, o.attention, out);
  return out;
}

}  // namespace

Generated generate_sampling(const StepGraph& step, const Implementation<SamplingTask>& sampling,
                            NodeId logits, const Setting& setting) {
  const auto& [task, plan] = sampling;
  const Choice choice = sampling;
  Generated out;
  out.sources = {instantiate("sampling", "kernels/sampling.cuh", "AC_SAMPLING_KERNEL", "SamplingOp",
                             op_text(choice), "SamplingPlan", plan_text(choice))};
  ParamsOf<SamplingParams> of(step, out);
  SamplingParams& p = of.params;
  const int grid = plan.grid(task.vocab, setting.multiprocessors);
  of.point(p.logits, logits);
  p.vocab = task.vocab;
  of.point(p.block_best, workspace(8ll * grid));
  of.point(p.finished_blocks, counters(4));
  of.point(p.token, {.role = Buffer::Role::token});
  out.launches = {
      shaped(of.finish(), out.sources[0], {grid, 1, 1}, plan.threads, plan.shared_bytes())};
  return out;
}

Generated generate(const StepGraph& step, const Choice& choice, const Operands& operands,
                   const Setting& setting) {
  const Context context{step, choice, setting};
  return std::visit(
      [&](const auto& made, const auto& o) -> Generated {
        if constexpr (requires { make(context, made, o); })
          return make(context, made, o);
        else
          AC_UNREACHABLE();
      },
      choice, operands);
}

}  // namespace ac
