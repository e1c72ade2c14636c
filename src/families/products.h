// What the families of products have in common: weights with few tokens (gemv, mma_gemv) or many
// (gemm, mma_gemm, tma_gemm, cublaslt, and qkv_attention with more behind it).
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <variant>

#include "families/family.h"
#include "kernels/tma_gemm_plan.h"
#include "kernels/weight_format.h"

namespace ac {

using kernels::Format;

// Of a pair, gate comes before up, and only y[0] is written.
struct ProductOperands {
  NodeId x = -1;     // of the norm, if there is one
  NodeId norm = -1;  // the rms_norm node
  std::array<NodeId, 3> weight = {-1, -1, -1}, bias = {-1, -1, -1}, y = {-1, -1, -1};
  NodeId residual = -1;
  double scale = 1, softcap = 0;
};

// The task of a family that computes many tokens.
struct GemmProblem {
  using Operands = ProductOperands;
  kernels::GemmOp op;
  kernels::GemmShape shape;

  double bytes() const { return kernels::gemm_bytes(op, shape); }
  double flops() const { return kernels::gemm_flops(op, shape); }
};

struct FoundProduct {
  kernels::GemmOp op;
  kernels::GemmShape shape;
  ProductOperands operands;
};

// A norm (for few tokens only) -> up to three linears -> pair, bias, scale, residual, softcap, in
// the order in which kernels do them. Or why the region is none. Few tokens have no
// gaps between their rows.
std::variant<FoundProduct, std::string> find_product(const Body& body, bool few_tokens);
std::string reads_no_weights_in(const Format& format);
// A product of many tokens, unless there is a reason why this family does not compute it. One that
// reads weights in formats of codes says so: Task::reads_codes.
template <class Task, class WhyNot>
Match<Task> match_gemm(const Body& body, const WhyNot& why_not) {
  const auto product = find_product(body, false);
  if (const auto* why = std::get_if<std::string>(&product)) return *why;
  const auto& found = std::get<FoundProduct>(product);
  if constexpr (!requires { Task::reads_codes; })
    if (!found.op.format.is_plain()) return reads_no_weights_in(found.op.format);
  if (const char* why = why_not(found)) return why;
  return Matched<Task>{{{found.op, found.shape}}, found.operands};
}
// A reason or null.
const char* why_not_by_tensor_cores(const Body& body, const FoundProduct& found);

// Of tiles that share an SM's arithmetic: what the last round leaves idle counts.
double busy_share(double tiles, double at_once);
// The share of what tiles compute that is asked for.
double useful_share(const kernels::GemmOp& op, const kernels::GemmShape& shape, double tiles,
                    int tile_m, int tile_n);

// Blocks that have rows of one scale.
inline int blocks_of_scales(const Format& format, int tile_n) {
  return std::max(kernels::divide_up(format.rows, tile_n), 1);
}
// From one row to the next: of plain weights elements, of codes bytes.
inline int pitch_of(const Format& format, int k) {
  return format.is_plain() ? k : k * kernels::bits_of(format.codes) / 8;
}
template <class Params, class CodedParams>
void point_to_scales(ParamsOf<Params>& of, CodedParams& p, int matrix, const Lowering& to,
                     const Format& format, NodeId weight) {
  const WeightFormat parts = traits(format);
  const auto point = [&](WeightPart::Kind kind, auto& to_part) {
    if (const auto index = parts.index_of(kind))
      of.point(to_part[matrix], buffer_of(to.step, weight, *index));
  };
  using Kind = WeightPart::Kind;
  point(Kind::scales, p.scales), point(Kind::zeros, p.zeros), point(Kind::global, p.globals);
  point(Kind::outer, p.outer), point(Kind::high, p.high), point(Kind::groups, p.groups);
}

// What launches of products of many tokens are filled in with.
template <class Params>
void fill_product(ParamsOf<Params>& of, kernels::GemmParams& p, const Lowering& to,
                  const kernels::GemmOp& op, const kernels::GemmShape& shape,
                  const ProductOperands& o) {
  for (int i = 0; i < op.matrices; ++i) {
    const auto at = static_cast<std::size_t>(i);
    of.point(p.matrix[i].weight, o.weight[at]);
    if (op.bias) of.point(p.matrix[i].bias, o.bias[at]);
    p.matrix[i].rows = shape.rows[i];
    p.matrix[i].y_pitch = shape.rows[i];
    if (o.y[at] >= 0) of.point(p.matrix[i].y, o.y[at]);
    if (op.residual) of.point(p.matrix[i].residual, o.residual);
  }
  of.count(p.m, rows_of(to.shape(o.x)));
  p.k = shape.k;
  p.pitch = pitch_of(op.format, shape.k);
  of.point(p.x, o.x);
  p.x_pitch = static_cast<int>(to.pitch(o.x));
  p.scale = static_cast<float>(o.scale);
  p.softcap = static_cast<float>(o.softcap);
}

// The same of weights in a format of codes.
template <class Params>
void fill_product(ParamsOf<Params>& of, kernels::CodedGemmParams& p, const Lowering& to,
                  const kernels::GemmOp& op, const kernels::GemmShape& shape,
                  const ProductOperands& o) {
  fill_product(of, static_cast<kernels::GemmParams&>(p), to, op, shape, o);
  for (int i = 0; i < op.matrices; ++i)
    point_to_scales(of, p, i, to, op.format, o.weight[static_cast<std::size_t>(i)]);
}

// Tiles of all tokens and matrices.
inline Count tiles_of(const Lowering& to, const kernels::GemmOp& op,
                      const kernels::GemmShape& shape, int tile_m, int tile_n, NodeId x) {
  Count tiles = count_of(rows_of(to.shape(x)));
  tiles.per = tile_m;
  tiles.times = kernels::gemm_tiles_n(op, shape, tile_n);
  return tiles;
}

// With the copy engine's maps. Returns how many blocks there are.
template <class Params, class TmaParams>
Count fill_product(ParamsOf<Params>& of, TmaParams& p, const Lowering& to,
                   const kernels::GemmOp& op, const kernels::GemmShape& shape,
                   const kernels::TmaGemmPlan& plan, const ProductOperands& o) {
  fill_product(of, p.gemm, to, op, shape, o);
  of.map(p.x, o.x, rows_of(to.shape(o.x)), shape.k, to.pitch(o.x), plan.box_m());
  if constexpr (requires { p.weight; })
    for (int i = 0; i < op.matrices; ++i)
      of.map(p.weight[i], o.weight[static_cast<std::size_t>(i)], Dim(shape.rows[i]), shape.k,
             shape.k, plan.box_n(op));
  Count blocks = tiles_of(to, op, shape, plan.tile_m * plan.cluster_m, plan.tile_n, o.x);
  blocks.times = std::int64_t{plan.across(op, shape)} * plan.cluster();
  blocks.at_most = plan.most_blocks(to.setting.multiprocessors);
  return blocks;
}

}  // namespace ac
