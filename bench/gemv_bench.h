// The plans and ops that the GEMV benchmark compiles, and the table of compiled kernels.
#pragma once

#include "kernels/attention.cuh"
#include "kernels/gemv.cuh"

namespace ac::bench {

using namespace ac::kernels;

// The matrices of a decoder layer, and the head.
enum Site { qkv, o, gate_up, down, head, site_count };
inline constexpr const char* site_names[] = {"qkv", "o", "gate_up", "down", "head"};
inline constexpr GemvOp ops[] = {
    {.norm = true},
    {.residual = true},
    {.norm = true, .pair = Pair::swiglu, .matrices = 2},
    {.residual = true},
    {.y = Type::f32, .norm = true, .argmax = true},
};

constexpr GemvPlan registers(int threads, int rows, int depth, int resident, bool persistent,
                             Signal signal = Signal::entry, int split = 1,
                             Cache cache = Cache::streaming) {
  return {.threads = threads,
          .rows = rows,
          .depth = depth,
          .ring = Ring::registers,
          .split = split,
          .resident = resident,
          .persistent = persistent,
          .signal = signal,
          .cache = cache};
}
constexpr GemvPlan async(int threads, int rows, int depth, int resident, bool persistent,
                         Signal signal = Signal::entry, int split = 1) {
  return {.threads = threads,
          .rows = rows,
          .depth = depth,
          .ring = Ring::async_copy,
          .split = split,
          .resident = resident,
          .persistent = persistent,
          .signal = signal};
}
constexpr GemvPlan bulk(int threads, int rows, int depth, int chunks, int resident,
                        Signal signal = Signal::entry, int split = 1) {
  return {.threads = threads,
          .rows = rows,
          .depth = depth,
          .chunks = chunks,
          .ring = Ring::bulk_copy,
          .split = split,
          .resident = resident,
          .signal = signal};
}

inline constexpr GemvPlan plans[] = {
    // A plain one first: the uniform plan of a naive system.
    registers(256, 2, 4, 1024, false),
    registers(256, 1, 8, 512, true),
    registers(256, 1, 8, 512, true, Signal::last_group),
    registers(256, 1, 8, 512, true, Signal::entry, 1, Cache::no_allocate),
    registers(256, 1, 8, 512, true, Signal::entry, 1, Cache::evict_first),
    registers(256, 1, 8, 768, true),
    registers(256, 1, 8, 1024, true),
    registers(256, 1, 8, 1024, false),
    registers(512, 1, 8, 512, true),
    registers(512, 1, 8, 1024, true),
    registers(512, 1, 8, 1024, true, Signal::last_group),
    registers(512, 1, 8, 1024, false),
    registers(512, 1, 8, 1024, true, Signal::entry, 2),
    registers(512, 1, 4, 1024, true),
    registers(256, 2, 4, 512, true),
    registers(256, 2, 4, 768, true),
    registers(256, 2, 8, 512, true),
    registers(256, 2, 8, 512, true, Signal::last_group),
    registers(256, 2, 8, 512, false),
    registers(256, 4, 4, 512, true),
    registers(320, 1, 10, 640, false),
    registers(320, 2, 5, 640, false),
    registers(320, 2, 5, 640, true),
    registers(512, 2, 4, 512, true),
    registers(256, 1, 16, 512, true),
    registers(256, 1, 16, 512, true, Signal::entry, 2),
    async(256, 1, 16, 512, true),
    async(256, 1, 16, 768, false),
    async(512, 1, 12, 1024, true),
    async(512, 1, 8, 1024, false),
    async(256, 2, 8, 512, true),
    async(256, 2, 8, 512, true, Signal::last_group),
    async(256, 2, 6, 768, false),
    async(320, 2, 5, 640, true),
    async(128, 2, 16, 256, true),
    bulk(256, 1, 4, 4, 256),
    bulk(256, 1, 6, 4, 256),
    bulk(256, 1, 6, 4, 256, Signal::last_group),
    bulk(256, 1, 4, 4, 512),
    bulk(256, 1, 4, 8, 256),
    bulk(256, 1, 8, 2, 256),
    bulk(256, 2, 4, 2, 256),
    bulk(256, 2, 6, 2, 256),
    bulk(256, 2, 3, 4, 256),
    bulk(256, 2, 3, 4, 256, Signal::last_group),
    bulk(256, 2, 2, 8, 256),
    bulk(256, 2, 4, 2, 512),
    bulk(512, 1, 4, 2, 512),
    bulk(512, 1, 6, 2, 512),
    bulk(512, 1, 3, 4, 512),
    bulk(512, 1, 3, 4, 512, Signal::last_group),
    bulk(512, 1, 4, 4, 512),
    bulk(512, 1, 4, 2, 512, Signal::entry, 2),
    bulk(512, 2, 3, 2, 512),
    bulk(512, 2, 2, 4, 512),
    bulk(128, 2, 4, 4, 128),
    bulk(128, 2, 6, 4, 128),
    bulk(128, 4, 4, 2, 256),
    bulk(128, 1, 6, 8, 128),
    bulk(384, 2, 4, 2, 384),
    bulk(768, 1, 4, 2, 768),
    bulk(1024, 1, 3, 2, 1024),
};
inline constexpr int plan_count = sizeof(plans) / sizeof(plans[0]);

using Kernel = void (*)(GemvParams);
// Fill the plans that are legal for the site; o and down share one op.
void fill_table_0(Kernel* table);
void fill_table_1(Kernel* table);
void fill_table_2(Kernel* table);
void fill_table_4(Kernel* table);

// Attention of the three models, in their order.
inline constexpr AttentionOp attention_ops[] = {
    {.head_dim = 64, .group = 4, .rotary = 64},
    {.head_dim = 128, .group = 2, .qk_norm = true},
    {.head_dim = 128, .group = 4, .qk_norm = true},
};
// The first is the reference of the others: no tensor cores, one split.
inline constexpr AttentionPlan attention_plans[] = {
    {.tile = Tile::scalar, .threads = 256, .splits = 1},
    {.threads = 512, .splits = 16},
    {.threads = 512, .splits = 16, .min_tiles = 2},
    {.threads = 512, .splits = 8},
    {.threads = 256, .splits = 16},
    {.threads = 256, .splits = 33},
    {.threads = 256, .splits = 33, .min_tiles = 2},
    {.threads = 384, .splits = 16},
    {.threads = 128, .splits = 33, .min_tiles = 2},
};
inline constexpr int attention_plan_count = sizeof(attention_plans) / sizeof(attention_plans[0]);
using AttentionKernel = void (*)(AttentionParams);
void fill_attention_table(AttentionKernel (*table)[attention_plan_count]);

}  // namespace ac::bench
