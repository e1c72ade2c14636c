// q/k norm, RoPE and append on the host device: prefill and decode, long positions, small caches.
#include <doctest/doctest.h>

#include <vector>

#include "tests/unit/rope_append_case.h"

namespace ac::kernels {
namespace {

constexpr RopeAppendOp llama{.head_dim = 64, .rotary = 64};
constexpr RopeAppendOp qwen{.type = Type::bf16, .qk_norm = true};
constexpr RopeAppendOp gptj{.type = Type::f32, .head_dim = 80, .rotary = 32, .interleaved = true};
constexpr RopeAppendOp odd{.type = Type::f32, .head_dim = 45, .qk_norm = true, .rotary = 44};
constexpr RopeAppendOp plain{.head_dim = 40, .rotary = 0};

constexpr RopeAppendOp wide{.type = Type::bf16, .head_dim = 300, .qk_norm = true, .rotary = 300};

constexpr RopeAppendPlan resident{.threads = 64, .heads = 3, .resident = 64};
constexpr RopeAppendPlan all{.threads = 96, .persistent = false};

#define ROPE_TEST_KERNELS(op)                               \
  AC_ROPE_APPEND_KERNEL(rope_##op##_resident, op, resident) \
  AC_ROPE_APPEND_KERNEL(rope_##op##_all, op, all)
ROPE_TEST_KERNELS(llama)
ROPE_TEST_KERNELS(qwen)
ROPE_TEST_KERNELS(gptj)
ROPE_TEST_KERNELS(odd)
ROPE_TEST_KERNELS(plain)
ROPE_TEST_KERNELS(wide)

#define CASE(op, plan) \
  RopeAppendCase { #op "_" #plan, op, plan, rope_##op##_##plan }
#define CASES(op) CASE(op, resident), CASE(op, all)
const std::vector<RopeAppendCase> cases = {CASES(llama), CASES(qwen),  CASES(gptj),
                                           CASES(odd),   CASES(plain), CASES(wide)};

TEST_CASE("rope_append: a token and many, at positions near and far") {
  for (RopeAppendCase c : cases)
    for (int tokens : {1, 2, 17})
      for (int position : {0, 5, 63, 4095, 131055}) {
        c.tokens = tokens, c.position = position, ++c.seed;
        CHECK(run_rope_append(c) == "");
      }
}

TEST_CASE("rope_append: one matrix of q, k and v; in place; scales") {
  for (RopeAppendCase c : cases) {
    c.tokens = 5, c.position = 30, c.heads = 3, c.kv_heads = 1;
    c.rope_scale = 1.25f, c.norm_offset = 1;
    CHECK(run_rope_append(c) == "");
    c.fused_qkv = true;
    CHECK(run_rope_append(c) == "");
    c.gap = 3;  // rows begin anywhere
    CHECK(run_rope_append(c) == "");
    c.fused_qkv = false, c.in_place = true;
    CHECK(run_rope_append(c) == "");
  }
}

TEST_CASE("rope_append: a ring that the tokens fill, or nearly") {
  for (RopeAppendCase c : cases)
    for (int capacity : {16, 19}) {
      c.tokens = 16, c.position = 21, c.capacity = capacity;
      CHECK(run_rope_append(c) == "");
    }
}

TEST_CASE("rope_append: illegal plans say why") {
  CHECK(resident.why_illegal(llama) == nullptr);
  CHECK(says(resident.why_illegal({.head_dim = 0}), "head_dim"));
  CHECK(says(resident.why_illegal({.head_dim = 2000}), "head_dim"));
  CHECK(says(resident.why_illegal({.rotary = 7}), "rotary"));
  CHECK(says(resident.why_illegal({.rotary = 130}), "rotary"));
  CHECK(says(resident.why_illegal({.rotary = -2}), "rotary"));
  CHECK(says(RopeAppendPlan{.threads = 65}.why_illegal(llama), "threads"));
  CHECK(says(RopeAppendPlan{.resident = 5000}.why_illegal(llama), "resident"));
  CHECK(says(RopeAppendPlan{.heads = 0}.why_illegal(llama), "heads"));
}

}  // namespace
}  // namespace ac::kernels
