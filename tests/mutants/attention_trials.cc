// Trials of attention: plans and shapes that compilations have, and the family models have not.
#include <cmath>

#include "ir/builder.h"
#include "tests/device/whole_step.h"
#include "tests/mutants/trials.h"

namespace ac::mutants {
namespace {

struct Attention {
  DType dtype = DType::bf16;
  std::int64_t heads = 4, kv_heads = 2, dim = 128, rotary = 128;
  std::int64_t window = 0;
  double softcap = 0;
  bool normed = false;  // heads of queries and keys, by 1 + weight
  bool interleaved = false;
  // Query, key and value are parts of one matrix whose rows have so many columns before them.
  std::int64_t before = -1;
  bool has_own_queries = false;  // which are no part of that
};

StepGraph step_of(const Attention& a, const Dim& tokens) {
  StepGraph step;
  Builder b(step.graph);
  const std::int64_t all = ((a.has_own_queries ? 0 : a.heads) + 2 * a.kv_heads) * a.dim;
  const NodeId matrix = a.before < 0 ? -1 : b.input("qkv", {a.dtype, {tokens, a.before + all}});
  std::int64_t at = a.before;
  const auto part = [&](const char* name, std::int64_t heads) {
    const Shape shape{tokens, heads, a.dim};
    if (a.before < 0 || (a.has_own_queries && heads == a.heads))
      return b.input(name, {a.dtype, shape});
    const std::int64_t first = at;
    at += heads * a.dim;
    return b.reshape(b.slice(matrix, 1, first, at), shape);
  };
  NodeId q = part("q", a.heads), k = part("k", a.kv_heads);
  const NodeId v = part("v", a.kv_heads);
  if (a.normed) {
    q = b.rms_norm(q, b.weight("q_norm", {a.dtype, {a.dim}}), 1e-6, 1.0);
    k = b.rms_norm(k, b.weight("k_norm", {a.dtype, {a.dim}}), 1e-6, 1.0);
  }
  if (a.rotary > 0) {
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < a.rotary / 2; ++i)
      frequencies.push_back(
          std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(a.rotary)));
    const NodeId turns = b.constant(DType::f32, {a.rotary / 2}, frequencies);
    const NodeId positions = b.positions(tokens);
    q = b.rope(q, positions, turns, 1.0, a.interleaved);
    k = b.rope(k, positions, turns, 1.0, a.interleaved);
  }
  step.states.push_back(kv_state(a.dtype, a.kv_heads, a.dim, a.dim, a.window, "layer"));
  step.graph.outputs = {{"out", b.append_attend(q, k, v, 0, 0.125, a.window, a.softcap)}};
  return step;
}

template <class Task>
test::FamilyTrial trial(const char* name, const Attention& a, const typename Task::Plan& plan,
                        std::int64_t tokens) {
  const Dim count = tokens == 1 ? Dim(1) : Dim(Symbol::T);
  test::Admission all =
      test::admission_of_whole_step<Task>(name, step_of(a, count), false, plan, tokens);
  return {std::string(Task::family), name, std::move(all.quick), std::move(all.confirmation)};
}

}  // namespace

std::vector<test::FamilyTrial> trials_of_attention() {
  using kernels::Tile;
  const auto decode = [](const char* name, const Attention& a, const AttentionTask::Plan& plan) {
    return trial<AttentionTask>(name, a, plan, 1);
  };
  const auto prefill = [](const char* name, const Attention& a,
                          const PrefillAttentionTask::Plan& plan, std::int64_t tokens = 70) {
    return trial<PrefillAttentionTask>(name, a, plan, tokens);
  };
  return {
      decode("three heads of 80 share keys",
             {.dtype = DType::f16, .heads = 6, .dim = 80, .rotary = 40, .normed = true},
             {.tile = Tile::scalar, .threads = 128, .splits = 3}),
      decode("heads of 40 in a window",
             {.dtype = DType::f32, .heads = 2, .dim = 40, .rotary = 40, .window = 50},
             {.tile = Tile::scalar, .threads = 64, .splits = 4, .min_tiles = 2}),
      decode("five heads of 128 share keys", {.heads = 10, .normed = true},
             {.threads = 64, .splits = 4, .min_tiles = 3}),
      decode("heads of 256", {.heads = 2, .kv_heads = 1, .dim = 256, .rotary = 256},
             {.threads = 256, .splits = 2}),
      prefill("plain arithmetic without a window", {.dtype = DType::f32, .dim = 40, .rotary = 40},
              {.tile = Tile::scalar, .query_tile = 16, .key_tile = 32, .warps = 4, .stages = 1}),
      prefill("plain arithmetic in a window, capped",
              {.dtype = DType::f16, .dim = 42, .rotary = 42, .window = 40, .softcap = 20},
              {.tile = Tile::scalar, .query_tile = 8, .key_tile = 64, .warps = 4, .stages = 1}),
      prefill("mma with three tiles on their way", {.dtype = DType::f16, .dim = 64, .rotary = 64},
              {.query_tile = 64, .key_tile = 32, .warps = 4, .stages = 3, .splits = 2}),
      prefill("mma with four tiles, in a window", {.dim = 64, .rotary = 32, .window = 50},
              {.query_tile = 32, .key_tile = 16, .warps = 2, .stages = 4, .keep_queries = false}),
      prefill("warps of 32 queries in a window", {.dim = 64, .rotary = 64, .window = 50},
              {.query_tile = 64, .key_tile = 16, .warps = 2}, 140),
      prefill("normed heads of 32", {.dim = 32, .rotary = 32, .normed = true}, {}),
      prefill(
          "warps that meet in more memory than tiles take", {.dtype = DType::f16, .normed = true},
          {.query_tile = 64, .key_tile = 32, .warps = 8, .stages = 2, .resident = 1, .splits = 2}),
      prefill("wgmma of 128 queries", {.normed = true},
              {.tile = Tile::wgmma,
               .query_tile = 128,
               .key_tile = 64,
               .warps = 8,
               .stages = 2,
               .keep_queries = false,
               .resident = 1},
              140),
      prefill("wgmma in a window", {.dtype = DType::f16, .dim = 64, .rotary = 64, .window = 150},
              {.tile = Tile::wgmma,
               .query_tile = 64,
               .key_tile = 64,
               .warps = 4,
               .stages = 3,
               .resident = 2}),
      prefill("wgmma of 128 keys, capped", {.dim = 64, .rotary = 64, .softcap = 30},
              {.tile = Tile::wgmma,
               .query_tile = 64,
               .key_tile = 128,
               .warps = 4,
               .stages = 2,
               .resident = 1}),
      prefill("rows that begin anywhere", {.dtype = DType::f16, .interleaved = true, .before = 1},
              {}),
      prefill("rows that begin at odd places",
              {.dtype = DType::f16, .dim = 80, .rotary = 80, .normed = true, .before = 3},
              {.query_tile = 32, .key_tile = 32, .warps = 2}),
      prefill("rows of odd length",
              {.dtype = DType::f16, .normed = true, .interleaved = true, .before = 0}, {}),
      prefill("rows of odd length beside queries",
              {.dtype = DType::f16, .normed = true, .before = 1, .has_own_queries = true}, {}),
  };
}

}  // namespace ac::mutants
