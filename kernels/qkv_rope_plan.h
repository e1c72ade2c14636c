// The products of queries, keys and values by the copy engine's tiles, with what comes between them
// and attention of many tokens: norms of query and key heads, RoPE, and the append to the cache.
// The products themselves are never in memory. sm_90a alone.
#pragma once

#include "kernels/rope_append_plan.h"
#include "kernels/tma_gemm_plan.h"

namespace ac::kernels {

struct QkvRopeOp {
  GemmOp product;       // of three matrices, or of one with the rows of q, k and v
  RopeAppendOp append;  // of outputs
  AC_FIELDS(QkvRopeOp, product, append)

  constexpr const char* why_illegal() const {
    if (product.pair != Pair::none || product.residual) return "a product of q, k and v is plain";
    if (product.matrices != 1 && product.matrices != 3) return "matrices must be 1 or 3";
    if (append.type != product.y) return "heads have the type of the products";
    // Lanes have whole pairs of RoPE, and rows go to memory in lines of 16 bytes.
    if (append.head_dim < 16 || append.head_dim > 256 || !is_power_of_two(append.head_dim))
      return "head_dim must be a power of two from 16 to 256";
    if (append.rotary < 0 || append.rotary > append.head_dim)
      return "rotary must be at most head_dim";
    if (append.rotary % (append.interleaved ? 8 : 16) != 0)
      return "halves of what RoPE turns must be whole eights";
    return nullptr;
  }
};

constexpr const char* why_illegal(const QkvRopeOp& op, const TmaGemmPlan& plan) {
  if (const char* reason = op.why_illegal()) return reason;
  if (plan.tile_n % op.append.head_dim != 0) return "a tile must have whole heads";
  if (plan.cluster_k > 1) return "a block must have the whole of K";
  return plan.why_illegal(op.product);
}
constexpr const char* why_illegal(const QkvRopeOp& op, const TmaGemmPlan& plan,
                                  const GemmShape& shape, int max_shared_bytes) {
  if (const char* reason = why_illegal(op, plan)) return reason;
  for (int i = 0; i < op.product.matrices; ++i)
    if (shape.rows[i] % op.append.head_dim != 0) return "matrices must have whole heads";
  return plan.why_illegal(op.product, shape, max_shared_bytes);
}

template <class Product>
struct QkvRopeParamsFor {
  Product product;  // scale 1, no softcap, no outputs
  int heads, kv_heads;
  const void* q_norm;  // [head_dim], if op.append.qk_norm
  const void* k_norm;  // [head_dim], if op.append.qk_norm
  float norm_eps;
  float norm_offset;      // 1 where the norm multiplies by 1 + weight
  const float* inv_freq;  // [rotary / 2]
  float rope_scale;       // of cosine and sine
  int capacity;
  const int* position;  // [1] tokens before these: below 2^20
  void* q_out;          // [tokens, heads, head_dim]
  void* k_cache;        // [kv_heads, capacity, head_dim], a token at its position % capacity
  void* v_cache;        // [kv_heads, capacity, head_dim]; of more tokens than that, the last stay
  float* k_scales;      // [kv_heads, capacity], of codes, which no plan writes
  float* v_scales;
  long long unused[4] = {};  // whole 64 bytes, so that alignment changes no layout
};
template <Format format>
using QkvRopeParamsOf = QkvRopeParamsFor<TmaGemmParamsOf<format>>;
using QkvRopeParams = QkvRopeParamsFor<TmaGemmParams>;
static_assert(sizeof(QkvRopeParams) % 64 == 0);

}  // namespace ac::kernels
