// Decode attention on the host device at every kind of position, window and cache.
#include "tests/unit/attention_case.h"

#include <string>
#include <vector>

namespace ac::kernels {
namespace {

constexpr AttentionOp llama{
    .head_dim = 64, .group = 4, .rotary = 64, .window = true, .softcap = true};
constexpr AttentionOp qwen{.type = Type::bf16, .head_dim = 128, .group = 2, .qk_norm = true};
constexpr AttentionOp gemma{
    .head_dim = 256, .group = 1, .rotary = 256, .window = true, .softcap = true};
constexpr AttentionOp seven{.head_dim = 128, .group = 7, .rotary = 64, .interleaved = true};
constexpr AttentionOp phi{
    .head_dim = 80, .group = 1, .rotary = 32, .window = true, .softcap = true};
constexpr AttentionOp gpt{.type = Type::f32, .head_dim = 40, .group = 12, .rotary = 0};

constexpr AttentionOp llama_fp8{
    .head_dim = 64, .group = 4, .rotary = 64, .window = true, .softcap = true, .fp8 = true};
constexpr AttentionOp qwen_fp8{
    .type = Type::bf16, .head_dim = 128, .group = 2, .qk_norm = true, .fp8 = true};
constexpr AttentionOp gemma_fp8{
    .head_dim = 256, .group = 1, .rotary = 256, .window = true, .softcap = true, .fp8 = true};
constexpr AttentionOp wide_fp8{.type = Type::bf16, .head_dim = 192, .group = 7, .fp8 = true};
constexpr AttentionOp gpt_fp8{
    .type = Type::f32, .head_dim = 40, .group = 12, .rotary = 0, .fp8 = true};

constexpr AttentionPlan small{.threads = 64, .splits = 3};
constexpr AttentionPlan single{.threads = 128, .splits = 1};
constexpr AttentionPlan sparse{.threads = 64, .splits = 5, .min_tiles = 2};
constexpr AttentionPlan scalar{.tile = Tile::scalar, .threads = 64, .splits = 4};

AC_ATTENTION_KERNEL(llama_small, llama, small)
AC_ATTENTION_KERNEL(llama_single, llama, single)
AC_ATTENTION_KERNEL(llama_scalar, llama, scalar)
AC_ATTENTION_KERNEL(qwen_small, qwen, small)
AC_ATTENTION_KERNEL(qwen_sparse, qwen, sparse)
AC_ATTENTION_KERNEL(qwen_scalar, qwen, scalar)
AC_ATTENTION_KERNEL(gemma_small, gemma, small)
AC_ATTENTION_KERNEL(gemma_scalar, gemma, scalar)
AC_ATTENTION_KERNEL(seven_small, seven, small)
AC_ATTENTION_KERNEL(seven_sparse, seven, sparse)
AC_ATTENTION_KERNEL(phi_scalar, phi, scalar)
AC_ATTENTION_KERNEL(gpt_scalar, gpt, scalar)
AC_ATTENTION_KERNEL(llama_fp8_small, llama_fp8, small)
AC_ATTENTION_KERNEL(llama_fp8_scalar, llama_fp8, scalar)
AC_ATTENTION_KERNEL(qwen_fp8_sparse, qwen_fp8, sparse)
AC_ATTENTION_KERNEL(gemma_fp8_small, gemma_fp8, small)
AC_ATTENTION_KERNEL(wide_fp8_small, wide_fp8, small)
AC_ATTENTION_KERNEL(gpt_fp8_scalar, gpt_fp8, scalar)

#define CASE(op, plan) \
  AttentionCase { #op "_" #plan, op, plan, op##_##plan }
const std::vector<AttentionCase> cases = {
    CASE(llama, small),     CASE(llama, single),     CASE(llama, scalar),    CASE(qwen, small),
    CASE(qwen, sparse),     CASE(qwen, scalar),      CASE(gemma, small),     CASE(gemma, scalar),
    CASE(seven, small),     CASE(seven, sparse),     CASE(phi, scalar),      CASE(gpt, scalar),
    CASE(llama_fp8, small), CASE(llama_fp8, scalar), CASE(qwen_fp8, sparse), CASE(gemma_fp8, small),
    CASE(wide_fp8, small),  CASE(gpt_fp8, scalar)};

TEST_CASE("attention: positions from the first to many tiles a warp") {
  for (AttentionCase c : cases)
    for (int position : {0, 1, 15, 16, 17, 33, 130, 300}) {
      c.position = position, c.seed = static_cast<unsigned>(position + 1);
      CHECK(run_attention(c) == "");
    }
}

TEST_CASE("attention: windows, in a long cache and in one that only keeps the window") {
  for (AttentionCase c : cases) {
    if (!c.op.window) continue;
    c.window = 40;
    for (int capacity : {512, 64, 40})
      for (int position : {5, 39, 40, 41, 63, 64, 65, 150}) {
        c.capacity = capacity, c.position = position;
        CHECK(run_attention(c) == "");
      }
  }
}

TEST_CASE("attention: soft cap, and norms of 1 + weight") {
  for (AttentionCase c : cases) {
    c.position = 70, c.softcap = c.op.softcap ? 2 : 0, c.norm_offset = 1;
    CHECK(run_attention(c) == "");
  }
}

TEST_CASE("attention: an early look at the position may be old") {
  for (AttentionCase c : cases)
    for (int lag : {1, 20}) {
      c.position = 70, c.lag = lag;
      CHECK(run_attention(c) == "");
      if (!c.op.window) continue;
      c.position = 90, c.capacity = 64, c.window = 50;
      CHECK(run_attention(c) == "");
    }
}

TEST_CASE("attention: illegal plans say why") {
  const auto says = [](const char* reason, const char* word) {
    return reason != nullptr && std::string(reason).find(word) != std::string::npos;
  };
  CHECK(small.why_illegal(llama, 200 * 1024) == nullptr);
  CHECK(says(small.why_illegal(phi), "head_dim"));
  CHECK(says(small.why_illegal(gpt), "16-bit"));
  CHECK(says(small.why_illegal({.group = 12}), "groups"));
  CHECK(says(scalar.why_illegal({.head_dim = 300}), "head_dim"));
  CHECK(says(AttentionPlan{.threads = 1024}.why_illegal({.group = 8}, 48 * 1024), "shared"));
}

}  // namespace
}  // namespace ac::kernels
