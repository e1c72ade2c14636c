// The ops and plans that the benchmark of prefill attention compiles, and the tables of them.
#pragma once

#include "kernels/prefill_attention.cuh"

namespace ac::bench {

using namespace ac::kernels;

struct Attention {
  const char* model;
  PrefillAttentionOp op;
  int kv_heads;
};
inline constexpr Attention attentions[] = {
    {"Qwen3-1.7B", {.type = Type::bf16, .head_dim = 128, .group = 2}, 8},
    {"Qwen3-4B", {.type = Type::bf16, .head_dim = 128, .group = 4}, 8},
    {"Llama-3.2-1B", {.type = Type::bf16, .head_dim = 64, .group = 4}, 8},
};
inline constexpr int attention_count = sizeof(attentions) / sizeof(attentions[0]);

constexpr PrefillAttentionPlan groups_of_four(int groups, int key_tile, int stages, int resident,
                                              bool keep_queries) {
  return {.tile = Tile::wgmma,
          .query_tile = 64 * groups,
          .key_tile = key_tile,
          .warps = 4 * groups,
          .stages = stages,
          .keep_queries = keep_queries,
          .resident = resident};
}
constexpr bool kept = true, shared = false;
inline constexpr PrefillAttentionPlan plans[] = {
    {.query_tile = 128, .key_tile = 64, .warps = 4, .stages = 2, .resident = 2},  // mma
    groups_of_four(1, 64, 2, 1, kept),
    groups_of_four(1, 64, 2, 2, shared),
    groups_of_four(1, 64, 2, 2, kept),
    groups_of_four(1, 64, 3, 2, shared),
    groups_of_four(1, 64, 3, 2, kept),
    groups_of_four(1, 64, 2, 3, shared),
    groups_of_four(1, 64, 2, 3, kept),
    groups_of_four(1, 128, 2, 1, shared),
    groups_of_four(1, 128, 3, 1, shared),
    groups_of_four(1, 128, 2, 2, shared),
    groups_of_four(2, 64, 3, 1, kept),
    groups_of_four(2, 64, 4, 1, kept),
    groups_of_four(2, 64, 4, 1, shared),
    groups_of_four(2, 128, 2, 1, shared),
    groups_of_four(2, 128, 3, 1, shared),
    groups_of_four(2, 128, 2, 1, kept),
    groups_of_four(3, 64, 3, 1, shared),
};
inline constexpr int plan_count = sizeof(plans) / sizeof(plans[0]);

using Kernel = void (*)(PrefillAttentionParams);
// Fill the plans that are legal for the op.
void fill_prefill_table_0(Kernel* table);
void fill_prefill_table_1(Kernel* table);
void fill_prefill_table_2(Kernel* table);

}  // namespace ac::bench
