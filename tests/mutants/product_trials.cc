// ProductTrials of products: plans and sizes that compilations have, and the family models have
// not. Each is there for what its comment says.
#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "base/elements.h"
#include "ir/builder.h"
#include "tests/device/any_layout.h"
#include "tests/device/whole_step.h"
#include "tests/mutants/trials.h"

namespace ac::mutants {
namespace {

constexpr std::int64_t kProductTokens = 70;

struct Product {
  DType dtype = DType::bf16;
  std::int64_t k = 136;
  std::vector<std::int64_t> rows = {203};  // of each matrix; a pair's are as many
  kernels::Pair pair = kernels::Pair::none;
  bool norm = false, bias = false, residual = false;
  double scale = 1, softcap = 0;
  const char* format = "plain";
};

StepGraph step_of(const Product& product, bool one_token) {
  using kernels::Pair;
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens = one_token ? Dim(1) : Dim(Symbol::T);
  const DType dtype = product.dtype;
  NodeId x = b.input("x", {dtype, {tokens, product.k}});
  if (product.norm) x = b.rms_norm(x, b.weight("norm", {dtype, {product.k}}), 1e-6, 1.0);
  const auto project = [&](std::size_t i) {
    const std::int64_t rows = product.rows[i];
    const Format format = find_format(product.format)->format;
    const NodeId w = b.weight(fmt::format("w{}", i), {dtype, {rows, product.k}}, format,
                              test::any_layout(format));
    return product.bias ? b.linear(x, w, b.weight(fmt::format("b{}", i), {dtype, {rows}}))
                        : b.linear(x, w);
  };
  const auto finish = [&](NodeId y, std::size_t i) {
    if (product.scale != 1) y = b.binary(Op::mul, y, b.scalar(dtype, product.scale));
    if (product.residual)
      y = b.binary(Op::add, y, b.input("residual", {dtype, {tokens, product.rows[i]}}));
    if (product.softcap > 0) {
      const NodeId cap = b.scalar(dtype, product.softcap);
      y = b.binary(Op::mul, b.unary(Op::tanh, b.binary(Op::div, y, cap)), cap);
    }
    step.graph.outputs.push_back({fmt::format("y{}", i), y});
  };
  if (product.pair != Pair::none) {
    const NodeId gate = project(0), up = project(1);
    const NodeId active = product.pair == Pair::swiglu
                              ? b.unary(Op::silu, gate)
                              : b.gelu(gate, product.pair == Pair::geglu_tanh);
    finish(b.binary(Op::mul, active, up), 0);
  } else {
    for (std::size_t i = 0; i < product.rows.size(); ++i) finish(project(i), i);
  }
  return step;
}

// Products of queries, keys and values, of one matrix or three, and attention.
struct Qkv {
  const char* format = "plain";
  DType dtype = DType::bf16;
  std::int64_t k = 136, heads = 6, kv_heads = 3, head_dim = 32, rotary = head_dim;
  bool one_matrix = false, interleaved = false, bias = false, qk_norm = false;
  double rope_scale = 1;
  std::int64_t window = 0;
};

StepGraph step_of(const Qkv& qkv) {
  StepGraph step;
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const auto weight = [&](const std::string& name, Shape shape) {
    return b.weight(name, {qkv.dtype, std::move(shape)});
  };
  const NodeId x = b.input("x", {qkv.dtype, {tokens, qkv.k}});
  const auto project = [&](const std::string& name, std::int64_t heads) {
    const Format format = find_format(qkv.format)->format;
    const NodeId w = b.weight(name, {qkv.dtype, {heads * qkv.head_dim, qkv.k}}, format,
                              test::any_layout(format));
    return qkv.bias ? b.linear(x, w, weight(name + ".bias", {heads * qkv.head_dim}))
                    : b.linear(x, w);
  };
  const NodeId all = qkv.one_matrix ? project("qkv", qkv.heads + 2 * qkv.kv_heads) : NodeId{-1};
  const auto part = [&](const std::string& name, std::int64_t first, std::int64_t heads) {
    const NodeId rows = qkv.one_matrix
                            ? b.slice(all, 1, first * qkv.head_dim, (first + heads) * qkv.head_dim)
                            : project(name, heads);
    return b.reshape(rows, {tokens, heads, qkv.head_dim});
  };
  NodeId q = part("q", 0, qkv.heads), k = part("k", qkv.heads, qkv.kv_heads);
  const NodeId v = part("v", qkv.heads + qkv.kv_heads, qkv.kv_heads);
  if (qkv.qk_norm) {
    q = b.rms_norm(q, weight("q_norm", {qkv.head_dim}), 1e-6, 1.0);
    k = b.rms_norm(k, weight("k_norm", {qkv.head_dim}), 1e-6, 1.0);
  }
  const NodeId positions = b.positions(tokens);
  std::vector<double> frequencies;
  for (int i = 0; i < qkv.rotary / 2; ++i)
    frequencies.push_back(round_to(DType::f32, std::pow(10000.0, -2.0 * i / double(qkv.rotary))));
  const NodeId turns = b.constant(DType::f32, {qkv.rotary / 2}, frequencies);
  q = b.rope(q, positions, turns, qkv.rope_scale, qkv.interleaved);
  k = b.rope(k, positions, turns, qkv.rope_scale, qkv.interleaved);
  step.states.push_back(
      kv_state(qkv.dtype, qkv.kv_heads, qkv.head_dim, qkv.head_dim, qkv.window, "layer"));
  step.graph.outputs = {{"out", b.append_attend(q, k, v, 0, 0.2, qkv.window, 0)}};
  return step;
}

class ProductTrials {
 public:
  // Of one token or more than a plan's few where the family computes few, else of so many.
  template <class Task>
  void add(const char* name, const Product& product, const typename Task::Plan& plan,
           std::int64_t tokens = kProductTokens) {
    bool one = false;
    if constexpr (std::is_base_of_v<GemvProblem, Task>)
      one = plan.tokens == 1, tokens = one ? 1 : plan.tokens + 2;
    add<Task>(name, step_of(product, one), plan, tokens, false);
  }
  void add(const char* name, const Qkv& qkv, const QkvAttentionPlan& plan) {
    add<QkvAttentionTask>(name, step_of(qkv), plan, kProductTokens, false);
  }
  void add_argmax(const char* name, const Product& product, const kernels::GemvPlan& plan) {
    add<GemvTask>(name, step_of(product, true), plan, 1, true);
  }
  std::vector<test::FamilyTrial> take() { return std::move(all_); }

 private:
  template <class Task>
  void add(const char* name, const StepGraph& step, const typename Task::Plan& plan,
           std::int64_t tokens, bool argmax) {
    test::Admission of = test::admission_of_whole_step<Task>(name, step, argmax, plan, tokens);
    all_.push_back({std::string(Task::family), fmt::format("{} of {}", Task::family, name),
                    std::move(of.quick), std::move(of.confirmation)});
  }

  std::vector<test::FamilyTrial> all_;
};

using kernels::Pair, kernels::Ring, kernels::Signal, kernels::Tile;

// Threads without a share of a tile, more tiles of tokens than a group has, matrices whose rows end
// within a tile.
void add_gemm(ProductTrials& all) {
  const kernels::GemmPlan small{
      .tile_m = 8, .tile_n = 32, .tile_k = 8, .thread_m = 1, .thread_n = 2};
  all.add<GemmTask>("three matrices", {.k = 21, .rows = {37, 20, 9}, .bias = true}, small);
  all.add<GemmTask>("a pair",
                    {.dtype = DType::f16,
                     .k = 21,
                     .rows = {37, 37},
                     .pair = Pair::swiglu,
                     .residual = true,
                     .softcap = 0.5},
                    small);
  all.add<GemmTask>(
      "few and odd rows",
      {.dtype = DType::f32,
       .k = 45,
       .rows = {53},
       .bias = true,
       .residual = true,
       .scale = 0.25,
       .softcap = 0.5},
      {.tile_m = 32, .tile_n = 32, .tile_k = 16, .thread_m = 2, .thread_n = 4, .stages = 1});
  all.add<GemmTask>("a pair of 8 bits",
                    {.k = 149, .rows = {141, 141}, .pair = Pair::swiglu, .format = "e4m3_128x128"},
                    small);
  all.add<GemmTask>("floats of 4 bits",
                    {.k = 178, .rows = {37, 20}, .format = "e2m1_g16_f8e4m3_global"}, small);
  all.add<GemmTask>("three matrices of 4 bits",
                    {.k = 178, .rows = {37, 20, 9}, .bias = true, .format = "u4_g32_f16_zeros"},
                    small);
}

// Rings that go round twice and end with a part of a step, rings with more slots than there are
// steps, outputs that do not lie in fours, tiles that threads copy unevenly.
void add_mma_gemm(ProductTrials& all) {
  for (const int stages : {2, 3, 4})
    all.add<MmaGemmTask>(
        "many steps", {.dtype = DType::f16, .k = 1096, .rows = {73}},
        {.tile_m = 64, .tile_n = 64, .warp_m = 32, .warp_n = 32, .stages = stages});
  all.add<MmaGemmTask>(
      "short steps",
      {.k = 328, .rows = {73}, .bias = true, .residual = true, .scale = 0.25, .softcap = 0.5},
      {.tile_m = 16, .tile_n = 128, .tile_k = 32, .warp_m = 16, .warp_n = 32, .group_m = 4});
  all.add<MmaGemmTask>("parts of K", {.k = 1080, .rows = {73, 40, 33}, .bias = true},
                       {.tile_m = 64, .tile_n = 64, .warp_m = 32, .warp_n = 32, .split = 4});
  all.add<MmaGemmTask>("a pair in parts of K",
                       {.dtype = DType::f16,
                        .k = 1096,
                        .rows = {73, 73},
                        .pair = Pair::geglu_tanh,
                        .residual = true,
                        .scale = 0.5},
                       {.tile_m = 32, .tile_n = 64, .warp_m = 32, .warp_n = 32, .split = 8});
  all.add<MmaGemmTask>(
      "long steps",
      {.dtype = DType::f16,
       .k = 392,
       .rows = {201},
       .residual = true,
       .scale = 0.25,
       .softcap = 0.5},
      {.tile_m = 64, .tile_n = 128, .tile_k = 128, .warp_m = 64, .warp_n = 32, .stages = 2});
  const kernels::MmaGemmPlan groups{
      .tile_m = 64, .tile_n = 128, .warp_m = 16, .warp_n = 64, .stages = 4, .tile = Tile::wgmma};
  kernels::MmaGemmPlan slots = groups, parts = groups;
  slots.stages = 8;
  parts.split = 4;
  all.add<MmaGemmTask>("many steps by wgmma", {.k = 1096, .rows = {137}, .bias = true}, groups);
  all.add<MmaGemmTask>(
      "sums where slots are left", {.k = 128, .rows = {137}},
      {.tile_m = 128, .tile_n = 128, .warp_m = 16, .warp_n = 64, .stages = 6, .tile = Tile::wgmma},
      133);
  all.add<MmaGemmTask>("more slots than steps", {.rows = {73, 73}, .pair = Pair::swiglu}, slots);
  all.add<MmaGemmTask>("parts of K by wgmma", {.dtype = DType::f16, .k = 1080, .rows = {73}},
                       parts);
}

// Every way in which blocks of a cluster share their work, each with rings that go round; parts of
// K that differ; lines of outputs that lie askew; more tiles of tokens than a group has.
void add_tma_gemm(ProductTrials& all) {
  const auto plan = [](int tile_m, int tile_n, int m, int n, int k, int group = 8) {
    return kernels::TmaGemmPlan{.tile_m = tile_m,
                                .tile_n = tile_n,
                                .stages = 3,
                                .cluster_m = m,
                                .cluster_n = n,
                                .cluster_k = k,
                                .group_m = group};
  };
  all.add<TmaGemmTask>("lines askew", {.k = 392, .rows = {201}}, plan(128, 128, 2, 1, 1), 133);
  all.add<TmaGemmTask>("a cluster of weights",
                       {.dtype = DType::f16, .k = 1096, .rows = {72, 40, 65}},
                       plan(64, 64, 1, 2, 1));
  all.add<TmaGemmTask>("tokens and weights together", {.k = 520, .rows = {136}, .residual = true},
                       plan(64, 64, 2, 2, 1), 200);
  all.add<TmaGemmTask>("groups of tokens", {.rows = {72, 40, 33}, .bias = true},
                       plan(64, 64, 1, 1, 1, 4), 330);
  all.add<TmaGemmTask>("two parts of K, tokens together",
                       {.k = 1080, .rows = {137}, .residual = true, .softcap = 0.5},
                       plan(64, 128, 2, 1, 2));
  all.add<TmaGemmTask>("three parts of K, weights together",
                       {.dtype = DType::f16, .k = 1096, .rows = {168}}, plan(64, 64, 1, 2, 3));
  all.add<TmaGemmTask>("two parts of K, all together", {.k = 200, .rows = {72}},
                       plan(64, 64, 2, 2, 2));
  all.add<TmaGemmTask>("a pair in four parts of K",
                       {.k = 520, .rows = {136, 136}, .pair = Pair::swiglu},
                       plan(64, 128, 1, 1, 4));
  all.add<TmaGemmTask>("8 bits in blocks", {.k = 432, .rows = {141, 40}, .format = "e4m3_128x128"},
                       plan(64, 64, 1, 2, 1), 133);
  all.add<TmaGemmTask>("8 bits with zero points, in parts of K",
                       {.k = 528, .rows = {137}, .residual = true, .format = "u8_row_zeros"},
                       plan(64, 128, 1, 1, 2));
  all.add<TmaGemmTask>("a pair of 4 bits",
                       {.dtype = DType::f16,
                        .k = 608,
                        .rows = {69, 69},
                        .pair = Pair::swiglu,
                        .format = "u4_g32_f16_zeros"},
                       plan(64, 128, 1, 1, 1));
  all.add<TmaGemmTask>(
      "a pair of floats of 4 bits",
      {.k = 608, .rows = {69, 69}, .pair = Pair::swiglu, .format = "e2m1_g16_f8e4m3_global"},
      plan(64, 64, 1, 1, 1));
  all.add<TmaGemmTask>("three matrices of 4 bits",
                       {.k = 416, .rows = {72, 40, 33}, .bias = true, .format = "u4_g128_bf16"},
                       plan(128, 64, 1, 2, 1), 133);
  all.add<TmaGemmTask>("parts of K, groups of tokens", {.dtype = DType::f16, .rows = {136}},
                       plan(64, 64, 1, 1, 2), 580);
}

// Every ring, with parts of a row that are empty and that are not full.
void add_gemv(ProductTrials& all) {
  all.add<GemvTask>("an empty part by bulk copies", {.rows = {37}, .norm = true, .residual = true},
                    {.threads = 128,
                     .rows = 2,
                     .depth = 3,
                     .chunks = 2,
                     .ring = Ring::bulk_copy,
                     .split = 2,
                     .resident = 128});
  all.add<GemvTask>("three matrices by bulk copies",
                    {.dtype = DType::f16, .k = 1192, .rows = {37, 20, 9}, .bias = true},
                    {.threads = 128,
                     .rows = 4,
                     .depth = 2,
                     .chunks = 2,
                     .ring = Ring::bulk_copy,
                     .resident = 128});
  all.add<GemvTask>("a pair by asynchronous copies",
                    {.k = 1192, .rows = {77, 77}, .pair = Pair::swiglu, .norm = true},
                    {.threads = 128,
                     .rows = 2,
                     .depth = 5,
                     .ring = Ring::async_copy,
                     .split = 2,
                     .resident = 128});
  all.add<GemvTask>("many turns by registers",
                    {.dtype = DType::f16, .k = 2696, .rows = {37, 20, 9}},
                    {.threads = 128,
                     .rows = 1,
                     .depth = 4,
                     .split = 2,
                     .resident = 256,
                     .persistent = false,
                     .signal = Signal::last_group});
  all.add<GemvTask>("many turns of 8 bits",
                    {.k = 2720, .rows = {37, 20, 9}, .format = "e4m3_128x128"},
                    {.threads = 128, .rows = 2, .depth = 2, .split = 2, .resident = 128});
  all.add<GemvTask>(
      "many turns of 4 bits", {.k = 2720, .rows = {37, 20, 9}, .format = "u4_g32_f16_zeros"},
      {.threads = 128, .rows = 2, .depth = 4, .ring = Ring::async_copy, .resident = 128});
  all.add<GemvTask>("floats without a ring", {.k = 178, .rows = {37}, .format = "e2m1_g32_f8e8m0"},
                    {.threads = 64, .rows = 2, .depth = 1, .ring = Ring::none, .resident = 64});
  all.add<GemvTask>("many turns of floats",
                    {.k = 2720, .rows = {37, 20, 9}, .format = "e2m1_g16_f8e4m3_global"},
                    {.threads = 64, .rows = 2, .depth = 2, .resident = 64});
  all.add<GemvTask>("codes without a ring", {.k = 178, .rows = {37}, .format = "u4_g32_bf16"},
                    {.threads = 128, .rows = 4, .depth = 1, .ring = Ring::none, .resident = 128});
  all.add<GemvTask>("rows of 8 bits", {.k = 1360, .rows = {37, 20}, .format = "u8_row_zeros"},
                    {.threads = 128, .rows = 1, .depth = 4, .resident = 256});
  all.add<GemvTask>(
      "odd columns without a ring", {.k = 173, .rows = {37, 20, 9}, .norm = true, .bias = true},
      {.threads = 128, .rows = 4, .depth = 1, .ring = Ring::none, .split = 2, .resident = 128});
  all.add<GemvTask>("some tokens", {.k = 1192, .rows = {37, 20, 9}, .norm = true, .bias = true},
                    {.threads = 64,
                     .rows = 2,
                     .depth = 3,
                     .ring = Ring::async_copy,
                     .split = 2,
                     .resident = 128,
                     .tokens = 5});
  all.add<GemvTask>("a pair of some tokens",
                    {.k = 1280,
                     .rows = {41, 41},
                     .pair = Pair::swiglu,
                     .residual = true,
                     .format = "u4_g16_i8_in256_minima"},
                    {.threads = 64, .rows = 2, .depth = 2, .resident = 128, .tokens = 3});
  all.add_argmax("a choice of many blocks", {.k = 136, .rows = {1003}, .softcap = 0.5},
                 {.threads = 128, .rows = 2, .depth = 4, .resident = 512});
}

// Scales that are staged and that are not, both halves of a tile, rings that go round, more tiles
// than two buffers of sums.
void add_mma_gemv(ProductTrials& all) {
  const auto plan = [](int threads, int rows, int depth, int split) {
    return kernels::MmaGemvPlan{
        .threads = threads, .rows = rows, .depth = depth, .split = split, .resident = 1};
  };
  all.add<MmaGemvTask>(
      "a pair of staged groups",
      {.k = 1024, .rows = {85, 85}, .pair = Pair::swiglu, .norm = true, .format = "u4_g128_bf16"},
      plan(64, 16, 2, 2));
  all.add<MmaGemvTask>("small groups of three matrices",
                       {.k = 1536, .rows = {37, 20, 9}, .bias = true, .format = "u4_g32_bf16"},
                       plan(96, 16, 3, 3));
  all.add<MmaGemvTask>("half tiles of staged groups",
                       {.k = 1280, .rows = {77}, .residual = true, .format = "u4_g128_bf16"},
                       plan(64, 8, 3, 2));
  kernels::MmaGemvPlan late = plan(128, 8, 3, 1);
  late.signal = Signal::last_group;
  all.add<MmaGemvTask>("half tiles with zero points",
                       {.dtype = DType::f16,
                        .k = 1056,
                        .rows = {77},
                        .residual = true,
                        .format = "u4_g32_f16_zeros"},
                       late);
  all.add<MmaGemvTask>(
      "rows of 8 bits",
      {.k = 1360, .rows = {57}, .scale = 0.25, .softcap = 0.5, .format = "u8_row_zeros"},
      plan(64, 16, 4, 2));
  all.add<MmaGemvTask>(
      "half tiles of floats",
      {.k = 1280, .rows = {77, 40}, .norm = true, .format = "e2m1_g16_f8e4m3_global"},
      plan(64, 8, 3, 2));
  all.add<MmaGemvTask>("a pair of floats",
                       {.dtype = DType::f16,
                        .k = 1024,
                        .rows = {85, 85},
                        .pair = Pair::swiglu,
                        .format = "e2m1_g32_f8e8m0"},
                       plan(64, 16, 3, 2));
  const auto of_tokens = [&](kernels::MmaGemvPlan of, int tokens) {
    of.tokens = tokens;
    return of;
  };
  all.add<MmaGemvTask>(
      "a pair of some tokens",
      {.k = 1024, .rows = {45, 45}, .pair = Pair::swiglu, .norm = true, .format = "u4_g128_bf16"},
      of_tokens(plan(64, 16, 2, 2), 6));
  all.add<MmaGemvTask>("half tiles of some tokens",
                       {.k = 1280, .rows = {45, 20}, .format = "e2m1_g16_f8e4m3_global"},
                       of_tokens(plan(64, 8, 3, 2), 5));
  all.add<MmaGemvTask>("quarter tiles",
                       {.k = 1096, .rows = {45, 45}, .pair = Pair::swiglu, .norm = true},
                       plan(64, 4, 3, 2));
  all.add<MmaGemvTask>("quarter tiles of some tokens",
                       {.dtype = DType::f16, .k = 1096, .rows = {77}, .residual = true},
                       of_tokens(plan(64, 4, 3, 2), 5));
  all.add<MmaGemvTask>("8 bits in blocks",
                       {.k = 688, .rows = {141, 40}, .norm = true, .format = "e4m3_128x128"},
                       plan(64, 8, 2, 2));
}

// Tiles of heads of which some are not there, or are queries, keys and values at once.
void add_qkv(ProductTrials& all) {
  const QkvAttentionPlan plan{.tile_m = 64,
                              .tile_n = 128,
                              .stages = 3,
                              .cluster_m = 1,
                              .tile = Tile::mma,
                              .query_tile = 64,
                              .key_tile = 64,
                              .warps = 4};
  const auto with = [&](int tile_n, int cluster_m, int cluster_n) {
    QkvAttentionPlan other = plan;
    other.tile_n = tile_n, other.cluster_m = cluster_m, other.cluster_n = cluster_n;
    return other;
  };
  all.add(
      "heads of one matrix, scaled turns",
      {.k = 264, .heads = 3, .head_dim = 64, .one_matrix = true, .bias = true, .rope_scale = 1.25},
      with(256, 1, 1));
  // A warp whose copies of keys do not repeat how they are swizzled.
  QkvAttentionPlan alone = plan;
  alone.query_tile = 16, alone.key_tile = 32, alone.warps = 1;
  all.add("biased heads", {.heads = 6, .head_dim = 64, .bias = true, .qk_norm = true}, alone);
  all.add("neighbours turned",
          {.dtype = DType::f16,
           .heads = 5,
           .kv_heads = 5,
           .rotary = 16,
           .interleaved = true,
           .rope_scale = 1.25,
           .window = 40},
          with(128, 2, 1));
  all.add("heads of 4 bits", {.format = "u4_g64_bf16", .k = 352, .heads = 6, .qk_norm = true},
          with(128, 1, 2));
  all.add("heads of one matrix, some turned",
          {.heads = 3, .rotary = 16, .one_matrix = true, .qk_norm = true}, with(64, 1, 2));
}

}  // namespace

std::vector<test::FamilyTrial> trials_of_products() {
  ProductTrials all;
  add_gemm(all);
  add_mma_gemm(all);
  add_tma_gemm(all);
  add_gemv(all);
  add_mma_gemv(all);
  add_qkv(all);
  return all.take();
}

}  // namespace ac::mutants
