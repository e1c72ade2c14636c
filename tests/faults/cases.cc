#include "tests/faults/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/builder.h"
#include "tests/device/whole_step.h"

namespace ac::kernels {
namespace {

struct GemvCase {
  const char* name;
  Type type;  // of weights, x and y
  GemvOp op;
  GemvPlan plan;
  int rows[3];  // of each matrix; of gate and up: one number
  int k;
  float norm_offset = 0, scale = 1, softcap = 0;
};

struct AttentionCase {
  const char* name;
  AttentionOp op;
  AttentionPlan plan;
  int window = 0;
  float softcap = 0, norm_offset = 0;
};

struct AdvanceCase {
  const char* name;
  DType ids;
  std::int64_t tokens;
};

constexpr GemvCase kGemvCases[] = {
    {.name = "swiglu",
     .type = Type::f16,
     .op = {.norm = true, .pair = Pair::swiglu, .matrices = 2},
     .plan = {.threads = 64, .rows = 2, .depth = 2, .split = 2, .resident = 64},
     .rows = {45},
     .k = 1048},
    {.name = "qkv",
     .type = Type::f16,
     .op = {.norm = true, .bias = true, .matrices = 3},
     .plan = {.threads = 64, .rows = 1, .depth = 4, .resident = 64},
     .rows = {32, 8, 8},
     .k = 264,
     .norm_offset = 1},
    {.name = "projection",
     .type = Type::f16,
     .op = {.residual = true},
     .plan = {.threads = 64,
              .rows = 1,
              .depth = 3,
              .chunks = 2,
              .ring = Ring::bulk_copy,
              .resident = 64},
     .rows = {50},
     .k = 1544},
    {.name = "scaled",
     .type = Type::bf16,
     .op = {.residual = true},
     .plan = {.threads = 64, .rows = 1, .depth = 5, .ring = Ring::async_copy, .resident = 64},
     .rows = {37},
     .k = 1048,
     .scale = 0.22f},
    {.name = "head",
     .type = Type::f16,
     .op = {.norm = true, .argmax = true},
     .plan = {.threads = 64, .rows = 2, .depth = 4, .resident = 64},
     .rows = {151},
     .k = 256,
     .softcap = 30},
    {.name = "geglu",
     .type = Type::bf16,
     .op = {.norm = true, .pair = Pair::geglu_tanh, .bias = true, .matrices = 2},
     .plan = {.threads = 32,
              .rows = 4,
              .depth = 2,
              .resident = 32,
              .signal = Signal::last_group,
              .cache = Cache::no_allocate},
     .rows = {45},
     .k = 328,
     .norm_offset = 1},
    {.name = "geglu_erf",
     .type = Type::f16,
     .op = {.pair = Pair::geglu_erf, .matrices = 2},
     .plan = {.threads = 64,
              .rows = 2,
              .depth = 3,
              .ring = Ring::async_copy,
              .split = 2,
              .resident = 64},
     .rows = {45},
     .k = 1048},
    {.name = "slow",
     .type = Type::f32,
     .op = {},
     .plan = {.threads = 64, .rows = 1, .depth = 1, .ring = Ring::none, .split = 2, .resident = 64},
     .rows = {37},
     .k = 333},
    {.name = "plain",
     .type = Type::f32,
     .op = {},
     .plan = {.threads = 64, .rows = 1, .depth = 4, .resident = 64},
     .rows = {37},
     .k = 1048},
    {.name = "many rows",
     .type = Type::f16,
     .op = {},
     .plan = {.threads = 64, .rows = 1, .depth = 2, .resident = 64},
     .rows = {3000},
     .k = 264},
};

constexpr AttentionCase kAttentionCases[] = {
    {.name = "llama",
     .op = {.head_dim = 64, .group = 4, .rotary = 64},
     .plan = {.threads = 64, .splits = 3}},
    {.name = "qwen",
     .op = {.type = Type::bf16, .head_dim = 128, .group = 2, .qk_norm = true},
     .plan = {.threads = 64, .splits = 5, .min_tiles = 2}},
    {.name = "phi",
     .op = {.head_dim = 80, .group = 1, .rotary = 32},
     .plan = {.tile = Tile::scalar, .threads = 64, .splits = 4}},
    {.name = "interleaved",
     .op = {.head_dim = 64, .group = 3, .rotary = 64, .interleaved = true},
     .plan = {.tile = Tile::scalar, .threads = 64, .splits = 2}},
    {.name = "window",
     .op = {.type = Type::bf16,
            .head_dim = 64,
            .group = 2,
            .qk_norm = true,
            .rotary = 64,
            .window = true,
            .softcap = true},
     .plan = {.threads = 64, .splits = 3},
     .window = 40,
     .softcap = 5,
     .norm_offset = 1},
    {.name = "full_window",
     .op = {.type = Type::f32,
            .head_dim = 40,
            .group = 3,
            .rotary = 0,
            .window = true,
            .softcap = true},
     .plan = {.tile = Tile::scalar, .threads = 64, .splits = 4},
     .window = 24,
     .softcap = 20},
    {.name = "fp8",
     .op = {.type = Type::bf16, .head_dim = 128, .group = 2, .qk_norm = true, .fp8 = true},
     .plan = {.threads = 64, .splits = 3}},
    {.name = "fp8 window",
     .op = {.head_dim = 64, .group = 4, .rotary = 64, .window = true, .fp8 = true},
     .plan = {.threads = 64, .splits = 2},
     .window = 40},
    {.name = "fp8 in units",
     .op = {.head_dim = 64, .group = 2, .rotary = 64, .fp8 = true},
     .plan = {.threads = 64, .splits = 2}},
    {.name = "fp8 scalar",
     .op = {.type = Type::f32, .head_dim = 40, .group = 3, .rotary = 0, .fp8 = true},
     .plan = {.tile = Tile::scalar, .threads = 64, .splits = 4}},
};

constexpr AdvanceCase kAdvanceCases[] = {
    {"decode_end", DType::i32, 1},
    {"prefill_end", DType::i64, 5},
};

constexpr int kKvHeads = 2;
constexpr float kEps = 1e-5f;

DType dtype_of(Type type) {
  return type == Type::f32 ? DType::f32 : type == Type::f16 ? DType::f16 : DType::bf16;
}

StepGraph graph_of(const GemvCase& c) {
  const GemvOp& op = c.op;
  const DType dtype = dtype_of(c.type);
  StepGraph step;
  Builder b(step.graph);
  const auto weight = [&](const std::string& name, Shape shape) {
    return b.weight(name, {dtype, std::move(shape)});
  };
  NodeId x = b.input("x", {dtype, {1, c.k}});
  if (op.norm) x = b.rms_norm(x, weight("norm", {c.k}), kEps, c.norm_offset);
  const auto project = [&](int m, int rows) {
    const NodeId w = weight(fmt::format("w{}", m), {rows, c.k});
    return op.bias ? b.linear(x, w, weight(fmt::format("b{}", m), {rows})) : b.linear(x, w);
  };
  const auto finish = [&](NodeId y, int m, int rows) {
    if (c.scale != 1) y = b.binary(Op::mul, y, b.scalar(dtype, c.scale));
    if (op.residual) y = b.binary(Op::add, y, b.input("residual", {dtype, {1, rows}}));
    if (c.softcap > 0) {
      const NodeId cap = b.scalar(dtype, c.softcap);
      y = b.binary(Op::mul, b.unary(Op::tanh, b.binary(Op::div, y, cap)), cap);
    }
    step.graph.outputs.push_back({fmt::format("y{}", m), y});
  };
  if (op.pair != Pair::none) {
    const NodeId gate = project(0, c.rows[0]), up = project(1, c.rows[0]);
    const NodeId active = op.pair == Pair::swiglu ? b.unary(Op::silu, gate)
                                                  : b.gelu(gate, op.pair == Pair::geglu_tanh);
    finish(b.binary(Op::mul, active, up), 0, c.rows[0]);
  } else {
    for (int m = 0; m < op.matrices; ++m) finish(project(m, c.rows[m]), m, c.rows[m]);
  }
  return step;
}

StepGraph graph_of(const AttentionCase& c) {
  const AttentionOp& op = c.op;
  const DType dtype = dtype_of(op.type);
  StepGraph step;
  Builder b(step.graph);
  const NodeId q = b.input("q", {dtype, {1, kKvHeads * op.group, op.head_dim}});
  const NodeId k = b.input("k", {dtype, {1, kKvHeads, op.head_dim}});
  const NodeId v = b.input("v", {dtype, {1, kKvHeads, op.head_dim}});
  const NodeId positions = b.positions(1);
  std::vector<double> frequencies;
  for (int i = 0; i < op.rotary / 2; ++i)
    frequencies.push_back(round_to(DType::f32, std::pow(10000.0, -2.0 * i / op.rotary)));
  const NodeId turns =
      op.rotary > 0 ? b.constant(DType::f32, {op.rotary / 2}, frequencies) : NodeId{-1};
  const auto prepare = [&](NodeId x, const std::string& norm) {
    if (op.qk_norm) x = b.rms_norm(x, b.weight(norm, {dtype, {op.head_dim}}), kEps, c.norm_offset);
    return op.rotary > 0 ? b.rope(x, positions, turns, 1.0, op.interleaved) : x;
  };
  const NodeId turned_q = prepare(q, "q_norm"), turned_k = prepare(k, "k_norm");
  step.states.push_back(kv_state(dtype, kKvHeads, op.head_dim, op.head_dim, c.window, "attention",
                                 0, op.fp8 ? KvStorage::fp8 : KvStorage::elements));
  step.graph.outputs.push_back(
      {"out", b.append_attend(turned_q, turned_k, v, 0, 1 / std::sqrt(double(op.head_dim)),
                              c.window, c.softcap)});
  return step;
}

}  // namespace

std::vector<std::string> own_case_names() {
  std::vector<std::string> names;
  for (const GemvCase& c : kGemvCases) names.emplace_back(c.name);
  for (const AttentionCase& c : kAttentionCases) names.emplace_back(c.name);
  for (const AdvanceCase& c : kAdvanceCases) names.emplace_back(c.name);
  return names;
}

test::Admission admission_of_own_case(const std::string& name) {
  for (const GemvCase& c : kGemvCases)
    if (name == c.name)
      return test::admission_of_whole_step<GemvTask>(name, graph_of(c), c.op.argmax, c.plan, 1);
  for (const AttentionCase& c : kAttentionCases)
    if (name == c.name)
      return test::admission_of_whole_step<AttentionTask>(name, graph_of(c), false, c.plan, 1);
  for (const AdvanceCase& c : kAdvanceCases)
    if (name == c.name) return test::admission_of_advance(c.ids, c.tokens);
  wrong_usage("there is no case \"{}\"", name);
}

}  // namespace ac::kernels
