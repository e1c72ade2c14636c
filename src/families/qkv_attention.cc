#include "families/qkv_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace ac {

using namespace kernels;

namespace {

// The products of a region, or the rest, as a region of its own.
class Half {
 public:
  Half(const Body& body, bool products) {
    std::vector<NodeId> nodes;
    for (const NodeId id : body.compute())
      if ((body[id].op == Op::linear) == products) nodes.push_back(id);
    if (nodes.empty()) return;
    auto made = make_region(body.step(), nodes);
    if (auto* region = std::get_if<Region>(&made)) region_.emplace(std::move(*region));
    if (region_) body_.emplace(body.step(), *region_, body.at());
  }
  const Body* operator->() const { return &*body_; }
  const Body& operator*() const { return *body_; }
  explicit operator bool() const { return body_.has_value(); }

 private:
  std::optional<Region> region_;
  std::optional<Body> body_;
};

// Puts the products in the order of q, k and v, or finds all three in the rows of one. Says what is
// read otherwise, or null.
const char* order(const Body& body, TmaGemmTask& product, ProductOperands& operands,
                  const PrefillAttentionTask& attention, const AttentionOperands& read) {
  const ProductOperands unordered = operands;
  const kernels::GemmShape shape = product.shape;
  const int kv_rows = attention.kv_heads * attention.op.head_dim;
  const std::array<int, 3> rows = {kv_rows * attention.op.group, kv_rows, kv_rows};
  int before = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NodeId value = std::array{read.q, read.k, read.v}[i];
    const auto found =
        std::ranges::find(unordered.y, storage_of(body.graph(), value)) - unordered.y.begin();
    const auto from = static_cast<std::size_t>(found);
    if (from >= static_cast<std::size_t>(product.op.matrices))
      return "attention reads no product of the region";
    if (product.op.matrices == 1) {
      if (layout_of(body.graph(), value).offset != Dim(before) ||
          body.head_pitch(value) != shape.rows[0])
        return "rows of q, k and v do not follow each other";
    } else {
      if (!body.is_flat(value) || shape.rows[from] != rows[i])
        return "a view behind a product moves elements";
      operands.weight[i] = unordered.weight[from], operands.bias[i] = unordered.bias[from];
      product.shape.rows[i] = rows[i];
    }
    before += rows[i];
  }
  if (product.op.matrices == 1 && shape.rows[0] != before) return "a product has further rows";
  operands.y = {-1, -1, -1};
  return nullptr;
}

}  // namespace

Match<QkvAttentionTask> QkvAttentionTask::match(const Body& body) {
  const Half products(body, true), rest(body, false);
  if (!products) return "it has no product with a weight";
  if (!rest) return "it has no attention";
  const auto attention = PrefillAttentionTask::match(*rest);
  if (const auto* why = std::get_if<std::string>(&attention)) return *why;
  if (std::get<Matched<PrefillAttentionTask>>(attention).task.op.fp8)
    return "its keys and values are stored as FP8";
  auto product = TmaGemmTask::match(*products);
  if (const auto* why = std::get_if<std::string>(&product)) return *why;
  if (body.region().outputs.size() != 1) return "what goes into attention is needed outside";

  auto& [gemm, gemm_operands] = std::get<Matched<TmaGemmTask>>(product);
  const auto& [append, read] = std::get<Matched<PrefillAttentionTask>>(attention);
  Operands operands{gemm_operands, read};
  if (const char* why = order(body, gemm, operands.product, append, read)) return why;
  const QkvAttentionTask task{{gemm.op, append.append}, gemm.shape, append};
  if (const char* why = task.op.why_illegal()) return why;
  return Matched<QkvAttentionTask>{task, operands};
}

std::vector<QkvAttentionPlan> QkvAttentionTask::plans() const {
  struct Keys {
    Tile tile;
    int query_tile, key_tile, warps, stages;
    bool keep;
    int resident, splits = 1;
  };
  // Few, as each goes with every product; those that did well by themselves, and neighbours.
  constexpr Keys kKeys[] = {
      {Tile::wgmma, 64, 64, 4, 2, true, 1},    {Tile::wgmma, 64, 64, 4, 2, false, 2},
      {Tile::wgmma, 64, 64, 4, 2, true, 2},    {Tile::wgmma, 64, 64, 4, 2, false, 3},
      {Tile::wgmma, 64, 128, 4, 2, false, 2},  {Tile::wgmma, 128, 64, 8, 3, true, 1},
      {Tile::wgmma, 128, 64, 8, 4, false, 1},  {Tile::wgmma, 128, 128, 8, 2, false, 1},
      {Tile::wgmma, 192, 64, 12, 3, false, 1}, {Tile::mma, 16, 128, 1, 3, true, 1},
      {Tile::mma, 64, 64, 4, 2, true, 2},      {Tile::mma, 128, 64, 8, 2, false, 1},
      {Tile::mma, 128, 128, 8, 3, false, 1},   {Tile::mma, 16, 128, 4, 2, false, 1, 4},
      {Tile::mma, 32, 128, 8, 2, false, 1, 4}, {Tile::mma, 32, 128, 8, 2, true, 1, 4}};
  struct Products {
    int tile_m, tile_n, stages;
  };
  constexpr Products kProducts[] = {{64, 64, 8},   {64, 128, 6},  {64, 128, 8},
                                    {64, 256, 4},  {128, 64, 6},  {128, 64, 8},
                                    {128, 128, 4}, {128, 128, 6}, {128, 256, 4}};
  // Codes have a ring beside the elements'.
  constexpr Products kOfCodes[] = {{64, 64, 6},  {64, 128, 4},  {64, 128, 6},  {64, 256, 3},
                                   {128, 64, 6}, {128, 128, 3}, {128, 128, 4}, {128, 256, 3}};
  const bool plain = op.product.format.is_plain();
  std::vector<QkvAttentionPlan> plans;
  for (const Products& product : plain ? std::span<const Products>(kProducts) : kOfCodes)
    for (const TmaCluster& cluster : kTmaClusters)
      for (const Keys& keys : kKeys)
        plans.push_back({.tile_m = product.tile_m,
                         .tile_n = product.tile_n,
                         .stages = product.stages,
                         .cluster_m = cluster.m,
                         .cluster_n = cluster.n,
                         .group_m = 16,
                         .tile = keys.tile,
                         .query_tile = keys.query_tile,
                         .key_tile = keys.key_tile,
                         .warps = keys.warps,
                         .key_stages = keys.stages,
                         .keep_queries = keys.keep,
                         .resident = keys.resident,
                         .splits = keys.splits});
  return plans;
}

const char* QkvAttentionTask::why_illegal(const Plan& plan, const DeviceInfo& device) const {
  if (!device.warpgroups && device.sm > 0) return "the copy engine's tiles need sm_90a";
  if (const char* reason = kernels::why_illegal(op, plan.product(), shape, device.max_shared_bytes))
    return reason;
  if (const char* reason = attention.why_illegal(plan.attention(), device)) return reason;
  return why_too_much(attention.footprint(plan.attention(), device), device);
}

// One kernel after the other, the second without what goes before attention when it is alone.
Cost QkvAttentionTask::cost(const Plan& plan, const DeviceInfo& device) const {
  Cost cost = product().cost(plan.product(), device);
  const Cost behind = attention.cost(plan.attention(), device);
  const double tiles = double(plan.product().blocks(op.product, shape)) /
                       plan.product().at_once(device.multiprocessors);
  const double turns = std::ceil(tiles) * device.constants().qkv_attention.turn_tile;
  cost.microseconds += behind.microseconds + (turns - device.launch) * 1e6;
  cost.bytes = bytes();
  cost.flops = flops();
  cost.risk = std::max(cost.risk, behind.risk);
  return cost;
}

Extent QkvAttentionTask::extent(const Plan& plan) const {
  Extent extent = attention.extent(plan.attention());
  extent.tokens = std::max<std::int64_t>(plan.tile_m, extent.tokens);
  extent.group = std::int64_t{plan.group_m} * plan.cluster_m;
  // A tile's and one more.
  extent.kv_heads = plan.tile_n / op.append.head_dim + 1;
  extent.at_once = std::max<std::int64_t>(
      extent.at_once, blocks_of_scales(op.product.format, static_cast<int>(extent.block)));
  extent.rounds_weights = !op.product.format.is_plain();
  return extent;
}

// The product's tiles and all of attention are the outline: what is tried first differs in these.
void QkvAttentionTask::write_id(const Plan& plan, IdText& id) {
  id.add("{}x{}+{}{}x{}.{}.{}.{}", plan.tile_m, plan.tile_n, name_of(plan.tile), plan.query_tile,
         plan.key_tile, plan.warps, plan.key_stages, plan.resident)
      .unless("splits", plan.splits, 1, ".split{}", plan.splits)
      .unless("keep_queries", plan.keep_queries, false, ".keep")
      .add("/{}/c{}x{}/group{}", plan.stages, plan.cluster_m, plan.cluster_n, plan.group_m);
}

namespace {

template <class Params>
Generated lower_products(const QkvAttentionTask& task, const Lowering& to, const TmaGemmPlan& tiles,
                         const QkvAttentionTask::Operands& operands) {
  Generated out;
  KernelOf<Params> of(to, out, "qkv_rope", task.op, tiles);
  const GemmOp& op = task.op.product;
  const Count blocks =
      fill_product(of, of.params.product, to, op, task.shape, tiles, operands.product);
  fill_append(of, to, task.attention.heads(), task.attention.kv_heads, task.op.append.head_dim,
              false, operands.attention);
  of.launch({blocks, 1, 1}, tiles.threads(), tiles.shared_bytes(op));
  return out;
}

}  // namespace

Generated QkvAttentionTask::lower(const Lowering& to, const Plan& plan,
                                  const Operands& operands) const {
  using OfCodes = QkvRopeParamsFor<CodedTmaGemmParams>;
  const TmaGemmPlan tiles = plan.product();
  Generated out = op.product.format.is_plain()
                      ? lower_products<QkvRopeParams>(*this, to, tiles, operands)
                      : lower_products<OfCodes>(*this, to, tiles, operands);
  attention.add_attention(to, plan.attention(), operands.attention, out);
  return out;
}

}  // namespace ac
