// The kernels that faults are planted in: what each computes, with which plan, and on which shapes.
// Read by the test, and by the kernels' own translation unit (kernels.cc).
#pragma once

#include "kernels/advance_plan.h"
#include "kernels/attention_plan.h"
#include "kernels/gemv_plan.h"

namespace ac::kernels {

struct GemvCase {
  const char* name;
  GemvOp op;
  GemvPlan plan;
  int rows[3];  // of each matrix; of gate and up: one number
  int k;
  float norm_offset = 0, scale = 1, softcap = 0;
  bool in_place = false;  // y overwrites the residual
  bool linear = false;
};

struct AttentionCase {
  const char* name;
  AttentionOp op;
  AttentionPlan plan;
  int positions[9];
  int capacity = 512, window = 0;
  float softcap = 0, norm_offset = 0;
};

struct AdvanceCase {
  const char* name;
  AdvanceOp op;
  int tokens, logged;
  int positions[4];
};

inline constexpr GemvCase gemv_cases[] = {
    {.name = "swiglu",
     .op = {.norm = true, .pair = Pair::swiglu, .matrices = 2},
     .plan = {.threads = 64, .rows = 2, .depth = 2, .split = 2, .resident = 64, .l2_ahead = 512},
     .rows = {45},
     .k = 1048},
    {.name = "qkv",
     .op = {.norm = true, .bias = true, .matrices = 3},
     .plan = {.threads = 64, .rows = 1, .depth = 4, .resident = 64},
     .rows = {32, 8, 8},
     .k = 264,
     .norm_offset = 1},
    {.name = "projection",
     .op = {.residual = true},
     .plan = {.threads = 64,
              .rows = 1,
              .depth = 3,
              .chunks = 2,
              .ring = Ring::bulk_copy,
              .resident = 64},
     .rows = {50},
     .k = 1544,
     .in_place = true,
     .linear = true},
    {.name = "scaled",
     .op = {.weight = Type::bf16, .x = Type::bf16, .y = Type::bf16, .residual = true},
     .plan = {.threads = 64, .rows = 1, .depth = 5, .ring = Ring::async_copy, .resident = 64},
     .rows = {37},
     .k = 1048,
     .scale = 0.22f},
    {.name = "head",
     .op = {.y = Type::f32, .norm = true, .argmax = true},
     .plan = {.threads = 64, .rows = 2, .depth = 4, .resident = 64},
     .rows = {151},
     .k = 256,
     .softcap = 30},
    {.name = "geglu",
     .op = {.weight = Type::bf16,
            .x = Type::f32,
            .y = Type::bf16,
            .norm = true,
            .pair = Pair::geglu_tanh,
            .bias = true,
            .matrices = 2},
     .plan = {.threads = 32,
              .rows = 4,
              .depth = 2,
              .resident = 32,
              .early = false,
              .signal = Signal::last_group,
              .cache = Cache::no_allocate},
     .rows = {45},
     .k = 328,
     .norm_offset = 1},
    {.name = "geglu_erf",
     .op = {.x = Type::f32, .y = Type::f32, .pair = Pair::geglu_erf, .matrices = 2},
     .plan = {.threads = 64,
              .rows = 2,
              .depth = 3,
              .ring = Ring::async_copy,
              .split = 2,
              .resident = 64,
              .early = false},
     .rows = {45},
     .k = 1048},
    {.name = "slow",
     .op = {.weight = Type::f32, .x = Type::f32, .y = Type::f32},
     .plan = {.threads = 64, .rows = 1, .depth = 1, .ring = Ring::none, .split = 2, .resident = 64},
     .rows = {37},
     .k = 333,
     .linear = true},
    {.name = "plain",
     .op = {.weight = Type::f32, .x = Type::f32, .y = Type::f32},
     .plan = {.threads = 64, .rows = 1, .depth = 4, .resident = 64},
     .rows = {37},
     .k = 1048,
     .linear = true},
};

inline constexpr AttentionCase attention_cases[] = {
    {.name = "llama",
     .op = {.head_dim = 64, .group = 4, .rotary = 64},
     .plan = {.threads = 64, .splits = 3},
     .positions = {0, 1, 31, 32, 33, 65, 130, 300, 511}},
    {.name = "qwen",
     .op = {.type = Type::bf16, .head_dim = 128, .group = 2, .qk_norm = true},
     .plan = {.threads = 64, .splits = 5, .min_tiles = 2},
     .positions = {0, 1, 15, 16, 17, 33, 130, 200, 255},
     .capacity = 256},
    {.name = "phi",
     .op = {.head_dim = 80, .group = 1, .rotary = 32},
     .plan = {.tile = Tile::scalar, .threads = 64, .splits = 4},
     .positions = {0, 1, 3, 4, 5, 33, 64, 100, 127},
     .capacity = 128},
    {.name = "interleaved",
     .op = {.head_dim = 64, .group = 3, .rotary = 64, .interleaved = true},
     .plan = {.tile = Tile::scalar, .threads = 64, .splits = 2},
     .positions = {0, 1, 3, 4, 5, 33, 64, 100, 127},
     .capacity = 128},
    {.name = "window",
     .op = {.type = Type::bf16,
            .head_dim = 64,
            .group = 2,
            .qk_norm = true,
            .rotary = 64,
            .window = true,
            .softcap = true},
     .plan = {.threads = 64, .splits = 3},
     .positions = {1, 38, 39, 40, 41, 63, 64, 65, 150},
     .capacity = 64,
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
     .positions = {0, 1, 23, 24, 25, 26, 47, 48, 90},
     .capacity = 24,
     .window = 24,
     .softcap = 20},
};

inline constexpr AdvanceCase advance_cases[] = {
    {.name = "decode_end", .op = {}, .tokens = 1, .logged = 40, .positions = {0, 17, 38, 39}},
    {.name = "prefill_end",
     .op = {.wide_ids = true},
     .tokens = 5,
     .logged = 40,
     .positions = {0, 17, 34, 35}},
};

constexpr bool equal(const char* a, const char* b) {
  for (; *a == *b; ++a, ++b)
    if (*a == 0) return true;
  return false;
}
constexpr const GemvCase& gemv_case(const char* name) {
  for (const GemvCase& c : gemv_cases)
    if (equal(c.name, name)) return c;
  throw "no such case";
}
constexpr const AttentionCase& attention_case(const char* name) {
  for (const AttentionCase& c : attention_cases)
    if (equal(c.name, name)) return c;
  throw "no such case";
}
constexpr const AdvanceCase& advance_case(const char* name) {
  for (const AdvanceCase& c : advance_cases)
    if (equal(c.name, name)) return c;
  throw "no such case";
}

}  // namespace ac::kernels
