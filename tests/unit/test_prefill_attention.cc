// Prefill attention on the host device at every kind of position, window, cache and head.
#include <string>
#include <vector>

#include "tests/unit/prefill_attention_case.h"

namespace ac::kernels {
namespace {

constexpr PrefillAttentionOp llama{.head_dim = 64, .group = 2};
constexpr PrefillAttentionOp phi{.type = Type::bf16, .head_dim = 80, .group = 1};
constexpr PrefillAttentionOp phi3{.head_dim = 96, .group = 1};
constexpr PrefillAttentionOp qwen{.type = Type::bf16, .head_dim = 128, .group = 3};
constexpr PrefillAttentionOp gemma{.head_dim = 256, .group = 1, .softcap = true};
constexpr PrefillAttentionOp odd{.type = Type::f32, .head_dim = 37, .group = 2};

constexpr PrefillAttentionPlan small{.query_tile = 16, .key_tile = 16, .warps = 1};
constexpr PrefillAttentionPlan deep{
    .query_tile = 32, .key_tile = 32, .warps = 2, .stages = 3, .keep_queries = false};
constexpr PrefillAttentionPlan tall{.query_tile = 64, .key_tile = 16, .warps = 2};
constexpr PrefillAttentionPlan wide{.query_tile = 16, .key_tile = 64, .warps = 1, .stages = 4};
constexpr PrefillAttentionPlan split{.query_tile = 16,
                                     .key_tile = 64,
                                     .warps = 4,
                                     .keep_queries = false,
                                     .resident = 1,
                                     .splits = 4};
constexpr PrefillAttentionPlan split_teams{
    .query_tile = 64, .key_tile = 32, .warps = 4, .stages = 3, .splits = 2};
constexpr PrefillAttentionPlan group{.tile = Tile::wgmma,
                                     .query_tile = 64,
                                     .key_tile = 64,
                                     .warps = 4,
                                     .keep_queries = false,
                                     .resident = 1};
constexpr PrefillAttentionPlan group_keep{
    .tile = Tile::wgmma, .query_tile = 64, .key_tile = 64, .warps = 4, .stages = 3};
constexpr PrefillAttentionPlan groups_keep{
    .tile = Tile::wgmma, .query_tile = 128, .key_tile = 64, .warps = 8, .stages = 3, .resident = 1};
constexpr PrefillAttentionPlan groups{.tile = Tile::wgmma,
                                      .query_tile = 128,
                                      .key_tile = 128,
                                      .warps = 8,
                                      .keep_queries = false,
                                      .resident = 1};
constexpr PrefillAttentionPlan groups_of_three{.tile = Tile::wgmma,
                                               .query_tile = 192,
                                               .key_tile = 64,
                                               .warps = 12,
                                               .stages = 4,
                                               .keep_queries = false,
                                               .resident = 1};
constexpr PrefillAttentionPlan group_wide{.tile = Tile::wgmma,
                                          .query_tile = 64,
                                          .key_tile = 128,
                                          .warps = 4,
                                          .keep_queries = false,
                                          .resident = 1};
constexpr PrefillAttentionPlan scalar{
    .tile = Tile::scalar, .query_tile = 6, .key_tile = 32, .warps = 2, .stages = 1};
constexpr PrefillAttentionPlan scalar_wide{
    .tile = Tile::scalar, .query_tile = 4, .key_tile = 64, .warps = 4, .stages = 1};

AC_PREFILL_ATTENTION_KERNEL(prefill_llama_small, llama, small)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_deep, llama, deep)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_tall, llama, tall)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_scalar, llama, scalar)
AC_PREFILL_ATTENTION_KERNEL(prefill_phi_small, phi, small)
AC_PREFILL_ATTENTION_KERNEL(prefill_phi_deep, phi, deep)
AC_PREFILL_ATTENTION_KERNEL(prefill_phi3_wide, phi3, wide)
AC_PREFILL_ATTENTION_KERNEL(prefill_qwen_deep, qwen, deep)
AC_PREFILL_ATTENTION_KERNEL(prefill_qwen_wide, qwen, wide)
AC_PREFILL_ATTENTION_KERNEL(prefill_gemma_deep, gemma, deep)
AC_PREFILL_ATTENTION_KERNEL(prefill_gemma_scalar, gemma, scalar)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_split_teams, llama, split_teams)
AC_PREFILL_ATTENTION_KERNEL(prefill_qwen_split, qwen, split)
AC_PREFILL_ATTENTION_KERNEL(prefill_gemma_split, gemma, split)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_group, llama, group)
AC_PREFILL_ATTENTION_KERNEL(prefill_qwen_groups, qwen, groups)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_group_keep, llama, group_keep)
AC_PREFILL_ATTENTION_KERNEL(prefill_qwen_groups_keep, qwen, groups_keep)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_group_wide, llama, group_wide)
AC_PREFILL_ATTENTION_KERNEL(prefill_qwen_group_wide, qwen, group_wide)
AC_PREFILL_ATTENTION_KERNEL(prefill_gemma_group, gemma, group)
AC_PREFILL_ATTENTION_KERNEL(prefill_llama_groups_of_three, llama, groups_of_three)
AC_PREFILL_ATTENTION_KERNEL(prefill_odd_scalar, odd, scalar)
AC_PREFILL_ATTENTION_KERNEL(prefill_odd_scalar_wide, odd, scalar_wide)

PrefillAttentionCase case_of(const char* name, const PrefillAttentionOp& op,
                             const PrefillAttentionPlan& plan,
                             void (*kernel)(PrefillAttentionParams)) {
  PrefillAttentionCase c{.name = name, .op = op, .plan = plan, .kernel = kernel};
  c.softcap = op.softcap ? 2 : 0;
  return c;
}
#define CASE(op, plan) case_of("prefill_" #op "_" #plan, op, plan, prefill_##op##_##plan)
const std::vector<PrefillAttentionCase> cases = {
    CASE(llama, small),      CASE(llama, deep),       CASE(llama, tall),
    CASE(llama, scalar),     CASE(phi, small),        CASE(phi, deep),
    CASE(phi3, wide),        CASE(qwen, deep),        CASE(qwen, wide),
    CASE(gemma, deep),       CASE(gemma, scalar),     CASE(odd, scalar),
    CASE(odd, scalar_wide),  CASE(llama, group),      CASE(qwen, groups),
    CASE(llama, group_wide), CASE(qwen, group_wide),  CASE(gemma, group),
    CASE(llama, group_keep), CASE(qwen, groups_keep), CASE(llama, split_teams),
    CASE(qwen, split),       CASE(gemma, split),      CASE(llama, groups_of_three)};

struct Extent {
  int position, tokens;
};

TEST_CASE("prefill attention: new tokens after none, a few and many") {
  for (PrefillAttentionCase c : cases)
    for (const auto& [position, tokens] :
         std::vector<Extent>{{0, 1}, {0, 16}, {0, 67}, {1, 33}, {63, 18}, {150, 5}}) {
      c.position = position, c.tokens = tokens;
      c.seed = static_cast<unsigned>(position + tokens);
      c.gap = position > 0 ? 8 : 0;
      c.kv_heads = tokens > 20 ? 1 : 2;
      CAPTURE(position);
      CAPTURE(tokens);
      CHECK(run_prefill_attention(c) == "");
    }
}

TEST_CASE("prefill attention: windows, in a long cache and in one that only keeps the window") {
  for (PrefillAttentionCase c : cases)
    for (const auto& [position, tokens] :
         std::vector<Extent>{{0, 50}, {3, 1}, {23, 40}, {100, 33}}) {
      c.window = 24, c.position = position, c.tokens = tokens, c.kv_heads = 1;
      for (int capacity : {256, 90, c.window + tokens - 1}) {
        // A cache shorter than the text wraps; one as short as can be has no room to spare.
        c.capacity = capacity;
        CAPTURE(position);
        CAPTURE(tokens);
        CAPTURE(capacity);
        CHECK(run_prefill_attention(c) == "");
      }
    }
}

TEST_CASE("prefill attention: a window of one is the value itself") {
  for (PrefillAttentionCase c : cases) {
    c.window = 1, c.position = 20, c.tokens = 35;
    CHECK(run_prefill_attention(c) == "");
  }
}

TEST_CASE("prefill attention: scores that leave one weight, and equal ones") {
  for (PrefillAttentionCase c : cases) {
    c.position = 30, c.tokens = 20;
    c.size = 60;
    CHECK(run_prefill_attention(c) == "");
    c.size = 1e-4f;
    CHECK(run_prefill_attention(c) == "");
  }
}

TEST_CASE("prefill attention: a KV head of NaN spoils its own queries only") {
  for (PrefillAttentionCase c : cases) {
    c.position = 5, c.tokens = 18, c.hostile = true;
    CHECK(run_prefill_attention(c) == "");
  }
}

TEST_CASE("prefill attention: any thread schedule gives the same bits") {
  for (PrefillAttentionCase c : cases) {
    c.position = 10, c.tokens = 35, c.kv_heads = 1;
    std::vector<std::string> outputs(3);
    for (Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
      c.schedule = schedule;
      CHECK(run_prefill_attention(c, &outputs[static_cast<std::size_t>(schedule)]) == "");
    }
    CHECK(outputs[0] == outputs[1]);
    CHECK(outputs[0] == outputs[2]);
  }
}

TEST_CASE("prefill attention: illegal plans say why") {
  const auto says = [](const char* reason, const char* word) {
    return reason != nullptr && std::string(reason).find(word) != std::string::npos;
  };
  using Plan = PrefillAttentionPlan;
  CHECK(Plan{}.why_illegal(llama, 48 * 1024) == nullptr);
  CHECK(says(Plan{}.why_illegal({.head_dim = 272}), "1 to 256"));
  CHECK(says(Plan{}.why_illegal({.group = 0}), "group"));
  CHECK(says(Plan{.warps = 17}.why_illegal(llama), "1 to 16"));
  CHECK(says(Plan{.query_tile = 66}.why_illegal(llama), "divide"));
  CHECK(says(Plan{.resident = 0}.why_illegal(llama), "resident"));
  CHECK(says(Plan{.tile = Tile::scalar}.why_illegal(llama), "one stage"));
  CHECK(says(Plan{.tile = Tile::scalar, .query_tile = 256, .stages = 1}.why_illegal(llama),
             "registers"));
  CHECK(
      says(Plan{.tile = Tile::scalar, .key_tile = 16, .stages = 1}.why_illegal(llama), "whole 32"));
  CHECK(says(Plan{}.why_illegal(odd), "16-bit"));
  CHECK(says(Plan{}.why_illegal({.head_dim = 72}), "whole 16"));
  CHECK(says(Plan{.warps = 8}.why_illegal(llama), "queries in whole 16"));
  CHECK(says(Plan{.key_tile = 24}.why_illegal(llama), "keys in whole 16"));
  CHECK(says(Plan{.stages = 1}.why_illegal(llama), "2 to 4"));
  CHECK(says(Plan{.query_tile = 128}.why_illegal(gemma), "registers"));
  CHECK(says(Plan{.stages = 4}.why_illegal(llama, 48 * 1024), "shared"));
  CHECK(split.why_illegal(qwen, 80 * 1024) == nullptr);
  // Where four warps of 32 queries meet takes more than two tiles of 64 keys.
  constexpr Plan meets{.query_tile = 32, .key_tile = 64, .warps = 4, .splits = 4};
  CHECK(meets.meeting_bytes(llama) == 3 * 32 * 2 * 36 * 4);
  CHECK(says(Plan{.splits = 3}.why_illegal(llama), "splits"));
  CHECK(says(Plan{.key_tile = 32, .splits = 4}.why_illegal(llama), "keys in whole 16"));
  CHECK(says(Plan{.tile = Tile::wgmma, .splits = 2}.why_illegal(llama), "only mma"));
  CHECK(group.why_illegal(llama, 48 * 1024) == nullptr);
  CHECK(says(group.why_illegal(phi), "whole 64"));
  CHECK(says(Plan{.tile = Tile::wgmma, .query_tile = 128}.why_illegal(llama), "64 queries"));
  CHECK(says(Plan{.tile = Tile::wgmma, .key_tile = 96}.why_illegal(llama), "64 or 128"));
  CHECK(Plan{.tile = Tile::wgmma}.why_illegal(llama, 48 * 1024) == nullptr);
  CHECK(says(Plan{.tile = Tile::wgmma, .resident = 1}.why_illegal(gemma), "registers"));
  CHECK(says(groups_of_three.why_illegal({.head_dim = 192}), "registers"));
  // Barriers, and what brings panels to a multiple of 1024, come on top.
  CHECK(says(group.why_illegal(llama, group.shared_bytes(llama)), "shared"));
  CHECK(group.why_illegal(llama, group.shared_bytes(llama) + 1024) == nullptr);
  // What four warps give does not exceed what all began with.
  for (const int groups : {1, 2, 3})
    for (const int resident : {1, 2, 3}) {
      const Plan plan{.tile = Tile::wgmma, .warps = 4 * groups, .resident = resident};
      CHECK(plan.threads() == 128 * (groups + 1));
      CHECK(plan.group_registers() * 32 * plan.warps + Plan::loader_registers * 128 <=
            plan.registers_at_start() * plan.threads());
      CHECK(plan.registers_at_start() * plan.threads() * resident <= 65536);
    }
}

}  // namespace
}  // namespace ac::kernels
