// All layers of a decoder in one launch, on the host device; blocks that wait for each other.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/unit/layers_case.h"

namespace ac::kernels {
namespace {

// Sizes that fill steps of 512 columns and that do not; parts; heads with and without norms.
constexpr LayersOp small{.hidden = 192, .heads = 4, .kv_heads = 2, .head_dim = 64, .inter = 320};
constexpr LayersOp normed{
    .hidden = 576, .heads = 6, .kv_heads = 2, .head_dim = 128, .inter = 1088, .head_norms = true};
constexpr LayersOp wide{.hidden = 64, .heads = 16, .kv_heads = 2, .head_dim = 64, .inter = 64};
// Codes: of a step and a half, and of less than one.
constexpr LayersOp coded{.hidden = 768,
                         .heads = 8,
                         .kv_heads = 2,
                         .head_dim = 64,
                         .inter = 1280,
                         .format = {.codes = Codes::u4, .scale = ScaleType::bf16, .columns = 128}};
constexpr LayersOp fine{.hidden = 256,
                        .heads = 2,
                        .kv_heads = 2,
                        .head_dim = 128,
                        .inter = 512,
                        .head_norms = true,
                        .format = {.codes = Codes::u4, .scale = ScaleType::bf16, .columns = 32}};
// Codes of 8 bits: scales of rows, of groups, of blocks, and one of all.
constexpr LayersOp bytes{.hidden = 384,
                         .heads = 6,
                         .kv_heads = 2,
                         .head_dim = 64,
                         .inter = 640,
                         .format = {.codes = Codes::u8, .scale = ScaleType::bf16}};
constexpr LayersOp grouped_bytes{
    .hidden = 256,
    .heads = 2,
    .kv_heads = 2,
    .head_dim = 128,
    .inter = 384,
    .head_norms = true,
    .format = {.codes = Codes::u8, .scale = ScaleType::bf16, .columns = 32}};
constexpr LayersOp floats{
    .hidden = 640,
    .heads = 10,
    .kv_heads = 2,
    .head_dim = 64,
    .inter = 1152,
    .format = {.codes = Codes::e4m3, .scale = ScaleType::bf16, .rows = 64, .columns = 128}};
constexpr LayersOp floats_of_one{
    .hidden = 128,
    .heads = 2,
    .kv_heads = 2,
    .head_dim = 64,
    .inter = 256,
    .format = {.codes = Codes::e4m3, .scale = ScaleType::bf16, .rows = 0}};
// Codes of 4 bits with zero points, in few groups and many; of 8 bits; and small floats.
constexpr LayersOp with_zeros{
    .type = Type::f16,
    .hidden = 768,
    .heads = 8,
    .kv_heads = 2,
    .head_dim = 64,
    .inter = 1280,
    .format = {.codes = Codes::u4, .scale = ScaleType::f16, .zeros = true, .columns = 128}};
constexpr LayersOp of_format(LayersOp op, Format format) {
  op.format = format;
  return op;
}
constexpr LayersOp fine_with_zeros =
    of_format(fine, {.codes = Codes::u4, .scale = ScaleType::f16, .zeros = true, .columns = 64});
constexpr LayersOp coarse_with_zeros =
    of_format({.hidden = 512, .heads = 8, .kv_heads = 2, .head_dim = 64, .inter = 1024},
              {.codes = Codes::u4, .scale = ScaleType::f32, .zeros = true, .columns = 256});
constexpr LayersOp bytes_with_zeros = of_format(
    grouped_bytes, {.codes = Codes::u8, .scale = ScaleType::f16, .zeros = true, .columns = 32});
constexpr LayersOp nvfp4 = of_format(
    fine, {.codes = Codes::e2m1, .scale = ScaleType::e4m3, .columns = 16, .global = true});
constexpr LayersOp mxfp4 =
    of_format(with_zeros, {.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32});
// Caches of codes: heads of 64 and of 128 dimensions, with weights that are none and that are.
constexpr LayersOp with_fp8(LayersOp op) {
  op.fp8 = true;
  return op;
}
constexpr LayersOp small_fp8 = with_fp8(small), wide_fp8 = with_fp8(wide),
                   fine_fp8 = with_fp8(fine);
constexpr LayersPlan few{.blocks = 3, .stages = 3, .window = 1};
constexpr LayersPlan parts{.blocks = 5, .parts_o = 2, .parts_down = 3, .stages = 4, .window = 4};
constexpr LayersPlan many{.blocks = 9, .parts_o = 2, .stages = 2, .window = 2, .rounds_alone = 0};
// At a pace, which no clock of the host device keeps.
constexpr LayersPlan two_warps{.blocks = 5,
                               .parts_down = 3,
                               .stages = 3,
                               .window = 2,
                               .warps = 2,
                               .rounds_alone = 1,
                               .pace = 900};
constexpr LayersPlan in_parts{
    .blocks = 7, .parts_o = 2, .parts_down = 2, .stages = 3, .window = 3, .warps = 4};
constexpr LayersPlan four_warps{.blocks = 4, .stages = 2, .window = 1, .warps = 4};
constexpr LayersPlan never_alone{
    .blocks = 4, .stages = 2, .window = 1, .warps = 4, .rounds_alone = 0};

AC_LAYERS_KERNEL(small_few, small, few)
AC_LAYERS_KERNEL(normed_parts, normed, parts)
AC_LAYERS_KERNEL(wide_many, wide, many)
AC_LAYERS_KERNEL(coded_two_warps, coded, two_warps)
AC_LAYERS_KERNEL(fine_four_warps, fine, four_warps)
AC_LAYERS_KERNEL(fine_never_alone, fine, never_alone)
AC_LAYERS_KERNEL(bytes_two_warps, bytes, two_warps)
AC_LAYERS_KERNEL(grouped_bytes_four_warps, grouped_bytes, four_warps)
AC_LAYERS_KERNEL(floats_two_warps, floats, two_warps)
AC_LAYERS_KERNEL(floats_in_parts, floats, in_parts)
AC_LAYERS_KERNEL(floats_of_one_four_warps, floats_of_one, four_warps)
AC_LAYERS_KERNEL(with_zeros_two_warps, with_zeros, two_warps)
AC_LAYERS_KERNEL(fine_with_zeros_four_warps, fine_with_zeros, four_warps)
AC_LAYERS_KERNEL(coarse_with_zeros_four_warps, coarse_with_zeros, four_warps)
AC_LAYERS_KERNEL(bytes_with_zeros_four_warps, bytes_with_zeros, four_warps)
AC_LAYERS_KERNEL(nvfp4_four_warps, nvfp4, four_warps)
AC_LAYERS_KERNEL(mxfp4_two_warps, mxfp4, two_warps)
AC_LAYERS_KERNEL(small_fp8_few, small_fp8, few)
AC_LAYERS_KERNEL(wide_fp8_many, wide_fp8, many)
AC_LAYERS_KERNEL(fine_fp8_four_warps, fine_fp8, four_warps)
AC_LAYERS_KERNEL(fine_fp8_never_alone, fine_fp8, never_alone)

TEST_CASE("all layers in one launch compute what the layers do") {
  for (const Schedule schedule :
       {Schedule::forward, Schedule::reverse, Schedule::shuffled, Schedule::ahead}) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(run_layers<small, few>(small_few, schedule, 3, {0, 1, 7, 99, 8, 33}) == "");
    CHECK(run_layers<wide, many>(wide_many, schedule, 1, {99, 5}) == "");
  }
  CHECK(run_layers<normed, parts>(normed_parts, Schedule::shuffled, 2, {0, 40}) == "");
}

TEST_CASE("all layers in one launch read codes of 4 bits") {
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CAPTURE(static_cast<int>(schedule));
    // Up to 32 tokens one block attends a head.
    CHECK(run_layers<coded, two_warps>(coded_two_warps, schedule, 2, {0, 99, 32, 33}) == "");
    CHECK(run_layers<fine, four_warps>(fine_four_warps, schedule, 3, {7, 60}) == "");
  }
}

TEST_CASE("all layers in one launch read codes of 8 bits") {
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(run_layers<bytes, two_warps>(bytes_two_warps, schedule, 2, {0, 40}) == "");
    CHECK(run_layers<floats, two_warps>(floats_two_warps, schedule, 2, {5, 40}) == "");
  }
  const Schedule schedule = Schedule::shuffled;
  CHECK(run_layers<grouped_bytes, four_warps>(grouped_bytes_four_warps, schedule, 2, {7}) == "");
  CHECK(run_layers<floats, in_parts>(floats_in_parts, schedule, 2, {9}) == "");
  CHECK(run_layers<floats_of_one, four_warps>(floats_of_one_four_warps, schedule, 2, {9}) == "");
}

TEST_CASE("all layers in one launch read codes with zero points") {
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(run_layers<with_zeros, two_warps>(with_zeros_two_warps, schedule, 2, {0, 40}) == "");
    CHECK(run_layers<fine_with_zeros, four_warps>(fine_with_zeros_four_warps, schedule, 3,
                                                  {7, 60}) == "");
  }
  const Schedule schedule = Schedule::shuffled;
  CHECK(run_layers<coarse_with_zeros, four_warps>(coarse_with_zeros_four_warps, schedule, 2, {9}) ==
        "");
  CHECK(run_layers<bytes_with_zeros, four_warps>(bytes_with_zeros_four_warps, schedule, 2, {9}) ==
        "");
}

TEST_CASE("all layers in one launch read small floats") {
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(run_layers<nvfp4, four_warps>(nvfp4_four_warps, schedule, 2, {0, 40}) == "");
  }
  CHECK(run_layers<mxfp4, two_warps>(mxfp4_two_warps, Schedule::shuffled, 2, {9}) == "");
}

TEST_CASE("all layers in one launch attend to a cache of codes") {
  for (const Schedule schedule : {Schedule::forward, Schedule::reverse, Schedule::shuffled}) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(run_layers<small_fp8, few>(small_fp8_few, schedule, 3, {0, 1, 7, 99, 8, 33}) == "");
    // Up to 192 tokens one block attends a head, or none does alone.
    CHECK(run_layers<fine_fp8, four_warps>(fine_fp8_four_warps, schedule, 2, {0, 7, 60}) == "");
    CHECK(run_layers<fine_fp8, never_alone>(fine_fp8_never_alone, schedule, 2, {0, 17, 99}) == "");
  }
  CHECK(run_layers<wide_fp8, many>(wide_fp8_many, Schedule::shuffled, 1, {99, 5}) == "");
  for (const int tokens : {0, 20, 99})
    CHECK(run_layers<fine_fp8, never_alone>(fine_fp8_never_alone, Schedule::forward, 1, {tokens},
                                            false, true) == "");
}

TEST_CASE("what is no number stays so, whichever block and warp has it") {
  // Of 7 tokens, the block that attends to this one has no other; of 60, its last warp has none.
  for (const int tokens : {0, 7, 20, 60, 99}) {
    CAPTURE(tokens);
    CHECK(run_layers<fine, never_alone>(fine_never_alone, Schedule::forward, 1, {tokens}, false,
                                        true) == "");
    CHECK(run_layers<fine, four_warps>(fine_four_warps, Schedule::forward, 1, {tokens}, false,
                                       true) == "");
  }
}

// Block i waits for a word of block i + 1; the last one for none.
void pass_down(Word* words, int silent) {
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  wait_for_dependency();
  unsigned v[1] = {0};
  if (block + 1 < blocks) fetch_words<1, 1>([&](int) { return words + block + 1; }, 1, v);
  if (block != silent) store_word(words + block, v[0] + 1, 1);
}
TEST_CASE("blocks of a grid wait for each other, and a word that never comes is a deadlock") {
  std::vector<Word> words(7, Word{0, 0});
  const HostLaunch launch{.grid = {7, 1, 1}, .block = {1, 1, 1}, .cluster = 0, .must_wait = true};
  CHECK(host_launch(launch, pass_down, words.data(), -1).error == "");
  CHECK(words[0].value == 7);
  words.assign(7, Word{0, 0});
  const std::string error = host_launch(launch, pass_down, words.data(), 3).error;
  CHECK_MESSAGE(error.find("deadlock") != std::string::npos, error);
  CHECK_MESSAGE(error.find("block (2, 0, 0); 1 threads (first 0) wait in a wait for words") !=
                    std::string::npos,
                error);
}

TEST_CASE("a word that was read before it is stored is an error") {
  std::vector<Word> words(3, Word{0, 0});
  const HostLaunch launch{.grid = {3, 1, 1}, .block = {1, 1, 1}, .cluster = 0};
  CHECK(host_launch(launch, pass_down, words.data(), -1).error == "");
  // The words of the launch before look like this one's.
  const std::string error = host_launch(launch, pass_down, words.data(), -1).error;
  CHECK_MESSAGE(error.find("a word is stored that others have read already") != std::string::npos,
                error);
}

TEST_CASE("plans of all layers say what they cannot do") {
  const auto says = [](const char* reason, const std::string& what) {
    return reason != nullptr && std::string(reason).find(what) != std::string::npos;
  };
  CHECK(says(few.why_illegal({.type = Type::f16}), "overflows"));
  LayersOp half = with_fp8(coded);
  half.type = Type::f16;
  CHECK(says(few.why_illegal(half), "the range of bfloat16"));
  CHECK(says(few.why_illegal({.type = Type::f32}), "16 bits"));
  CHECK(says(few.why_illegal({.head_dim = 96}), "head_dim"));
  CHECK(says(few.why_illegal({.heads = 15}), "whole groups"));
  CHECK(says(few.why_illegal({.heads = 32, .kv_heads = 2}), "up to 8"));
  CHECK(says(few.why_illegal({.hidden = 1000}), "multiples of 64"));
  LayersOp of_codes{.format = coded.format};
  CHECK(few.why_illegal_format(of_codes) == nullptr);
  of_codes.inter = 3200;
  CHECK(says(few.why_illegal_format(of_codes), "multiples of a warp's columns"));
  of_codes.format.listed = true;
  CHECK(says(few.why_illegal_format(of_codes), "scales must be alone"));
  of_codes.format = {.codes = Codes::u6, .columns = 16};
  CHECK(says(few.why_illegal_format(of_codes), "4 or 8 bits"));
  of_codes.format = {.codes = Codes::u8, .zeros = true};
  CHECK(says(few.why_illegal_format(of_codes), "must be of groups"));
  of_codes.format = {.codes = Codes::e4m3, .scale = ScaleType::e8m0};
  CHECK(says(few.why_illegal_format(of_codes), "16 or 32 bits"));
  of_codes.hidden = 1280, of_codes.inter = 3072;
  of_codes.format = {.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 256};
  CHECK(says(few.why_illegal_format(of_codes), "even number of groups"));
  of_codes.format.columns = 8;
  CHECK(says(few.why_illegal_format(of_codes), "16 of 4 bits"));
  of_codes.hidden = 1024;
  of_codes.inter = 3072;
  of_codes.format = {.codes = Codes::e4m3, .rows = 24, .columns = 128};
  CHECK(says(few.why_illegal_format(of_codes), "whole tiles"));
  of_codes.format = {.codes = Codes::u8, .columns = 256};
  CHECK(says(few.why_illegal_format(of_codes), "whole in a warp's columns"));
  of_codes.format = {.codes = Codes::u8, .rows = 16};
  CHECK(says(few.why_illegal_format(of_codes), "rows must not share"));
  CHECK(says(LayersPlan{.warps = 7}.why_illegal({}), "in pairs"));
  CHECK(says(few.why_illegal({}), "needs a block"));
  CHECK(says(LayersPlan{.parts_down = 9}.why_illegal({}), "steps"));
  CHECK(says(LayersPlan{.window = 12}.why_illegal({}), "window"));
  CHECK(says(LayersPlan{}.why_illegal({}, 48 * 1024), "shared memory"));
  CHECK(LayersPlan{}.why_illegal({}, 227 * 1024) == nullptr);
}

}  // namespace
}  // namespace ac::kernels
