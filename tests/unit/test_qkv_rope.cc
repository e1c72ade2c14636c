// Products of q, k and v with norm, RoPE and append on the host device: heads of several sizes,
// tails of tokens, long positions, caches that are too small for all tokens.
#include <doctest/doctest.h>

#include <vector>

#include "tests/unit/matrix_map.h"
#include "tests/unit/qkv_rope_case.h"

namespace ac::kernels {
namespace {

constexpr GemmOp three{.matrices = 3};
constexpr GemmOp three_bf16{.weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .matrices = 3};

constexpr QkvRopeOp llama{.product = three, .append = {.head_dim = 64, .rotary = 64}};
constexpr QkvRopeOp qwen3{.product = three_bf16, .append = {.type = Type::bf16, .qk_norm = true}};
constexpr QkvRopeOp qwen2{.product = {.bias = true, .matrices = 3},
                          .append = {.head_dim = 64, .rotary = 64}};
constexpr QkvRopeOp partial{.product = three,
                            .append = {.head_dim = 64, .qk_norm = true, .rotary = 32}};
constexpr QkvRopeOp neighbours{
    .product = three_bf16,
    .append = {.type = Type::bf16, .head_dim = 32, .rotary = 24, .interleaved = true}};
constexpr QkvRopeOp unturned{.product = three, .append = {.head_dim = 16, .rotary = 0}};
// Tiles that hold heads of several kinds.
constexpr QkvRopeOp fused{.product = {.bias = true},
                          .append = {.head_dim = 32, .qk_norm = true, .rotary = 32}};

constexpr TmaGemmPlan small{.tile_m = 64, .tile_n = 128, .stages = 2, .cluster_m = 1};
constexpr TmaGemmPlan large{.stages = 3, .group_m = 1};
constexpr TmaGemmPlan across{
    .tile_m = 64, .tile_n = 128, .stages = 3, .cluster_m = 1, .cluster_n = 2};

// Nobody binds the maps here.
template <QkvRopeOp op, TmaGemmPlan plan>
void launched(QkvRopeParams p) {
  const GemmParams& product = p.product.gemm;
  const Type type = op.product.x;
  p.product.x = matrix_map(type, product.x, product.m, product.k, product.x_pitch, plan.box_m());
  for (int i = 0; i < op.product.matrices; ++i)
    p.product.weight[i] = matrix_map(type, product.matrix[i].weight, product.matrix[i].rows,
                                     product.k, product.pitch, plan.box_n(op.product));
  qkv_rope<op, plan>(p);
}

#define CASE(op, plan) \
  QkvRopeCase { #op "_" #plan, op, plan, launched<op, plan> }
const std::vector<QkvRopeCase> cases = {
    CASE(llama, small),    CASE(llama, large), CASE(qwen3, small),   CASE(qwen3, large),
    CASE(qwen2, across),   CASE(qwen2, large), CASE(partial, small), CASE(neighbours, across),
    CASE(unturned, small), CASE(fused, small)};

TEST_CASE("qkv_rope: tails of tokens, at positions near and far") {
  for (QkvRopeCase c : cases) {
    for (const auto& [tokens, position] : {std::pair{1, 131055}, {37, 5}}) {
      c.tokens = tokens, c.position = position, ++c.seed;
      CHECK(run_qkv_rope(c) == "");
    }
  }
}

TEST_CASE("qkv_rope: several tiles of tokens and weights, and rows of x that lie apart") {
  for (QkvRopeCase c : {CASE(llama, large), CASE(qwen3, small), CASE(fused, small)}) {
    c.tokens = 129, c.position = 4000, c.heads = 6, c.kv_heads = 3, c.k = 136, c.gap = 8;
    CHECK(run_qkv_rope(c) == "");
  }
}

TEST_CASE("qkv_rope: scales, and norms that add to their weight") {
  for (QkvRopeCase c : {CASE(qwen3, small), CASE(fused, small), CASE(neighbours, across)}) {
    c.tokens = 5, c.position = 30, c.heads = 3, c.kv_heads = 1;
    c.rope_scale = 1.25f, c.norm_offset = 1;
    CHECK(run_qkv_rope(c) == "");
  }
}

TEST_CASE("qkv_rope: the last tokens stay in a cache that is too small for all") {
  for (QkvRopeCase c : {CASE(llama, small), CASE(qwen2, across), CASE(fused, small)})
    for (const int capacity : {1, 7, 40}) {
      c.tokens = 66, c.position = 21, c.k = 8, c.capacity = capacity;
      CHECK(run_qkv_rope(c) == "");
    }
}

TEST_CASE("qkv_rope: any thread schedule and order of blocks gives the same bits") {
  QkvRopeCase c = CASE(qwen3, small);
  c.tokens = 70;
  std::vector<std::string> outputs;
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    c.schedule = schedule;
    outputs.emplace_back();
    CHECK(run_qkv_rope(c, &outputs.back()) == "");
    CHECK(outputs.back() == outputs.front());
  }
}

TEST_CASE("qkv_rope: what cannot be says why") {
  CHECK(why_illegal(qwen3, large) == nullptr);
  CHECK(says(why_illegal(qwen3, {.tile_n = 64}), "whole heads"));
  CHECK(says(why_illegal(qwen3, {.tile_m = 96}), "tile_m"));
  const auto with = [](RopeAppendOp append, GemmOp product = three) {
    return QkvRopeOp{product, append}.why_illegal();
  };
  CHECK(says(with({.head_dim = 96, .rotary = 96}), "head_dim"));
  CHECK(says(with({.head_dim = 8, .rotary = 0}), "head_dim"));
  CHECK(says(with({.head_dim = 64, .rotary = 24}), "eights"));
  CHECK(with({.head_dim = 64, .rotary = 24, .interleaved = true}) == nullptr);
  CHECK(says(with({.head_dim = 64}), "rotary"));
  CHECK(says(with({}, {.matrices = 2}), "matrices"));
  CHECK(says(with({}, {.residual = true, .matrices = 3}), "plain"));
  CHECK(says(with({.type = Type::bf16}), "type"));
  CHECK(why_illegal(llama, small, {1, {64, 64, 64}, 8}, 227 * 1024) == nullptr);
  CHECK(says(why_illegal(llama, small, {1, {96, 64, 64}, 8}, 227 * 1024), "whole heads"));
  CHECK(says(why_illegal(llama, small, {1, {64, 64, 64}, 8}, 1024), "shared"));
}

}  // namespace
}  // namespace ac::kernels
