#include "tests/faults/plan_cases.h"

#include <algorithm>
#include <limits>

#include "admit/trials.h"
#include "analyze/analyse.h"
#include "base/error.h"
#include "ir/builder.h"
#include "plan/cover.h"
#include "plan/planner.h"
#include "tests/device/family_models.h"
#include "tests/device/whole_step.h"

namespace ac::kernels {
namespace {

// The first candidate of that name, in any region of the model, whose op and region contain these.
struct PlanCase {
  const char *name, *model, *candidate, *op = "", *region = "";
};

constexpr const char *kDecode = "Qwen3ForCausalLM f16, decode", *kOddDecode = "odd, decode",
                     *kLlamaDecode = "LlamaForCausalLM bf16, decode",
                     *kFp8 = "Qwen3ForCausalLM bf16, prefill",
                     *kInt4 = "Qwen3ForCausalLM f32, prefill",
                     *kInt4Decode = "Qwen3ForCausalLM f32, decode",
                     *kLlama = "LlamaForCausalLM bf16, prefill",
                     *kQwen3 = "Qwen3ForCausalLM f16, prefill",
                     *kLlamaCodes = "LlamaForCausalLM bf16 fp8 cache, prefill",
                     *kQwen3Codes = "Qwen3ForCausalLM f16 fp8 cache, prefill",
                     *kQwen2 = "Qwen2ForCausalLM bf16, prefill",
                     *kMistral = "MistralForCausalLM f32, prefill", *kOdd = "odd, prefill",
                     *kRows = "rows bf16, prefill";

// Two tiles of tokens, the second with a tail, and K of parts that are not all as long.
constexpr std::int64_t kTokens = 70;
constexpr PlanCase kCases[] = {
    {"parts of k", kQwen3, "tma_gemm/64x64k3/4/c1x1/group8", "residual = true"},
    {"uneven parts of k", kQwen3, "tma_gemm/64x64k3/4/c1x1/group8", "matrices = 1",
     "weight f16[768, 264]"},
    {"pair of parts", kQwen3, "tma_gemm/128x64k2/4/c2x1/group8", "Pair::swiglu"},
    {"cluster of rows", kQwen3, "tma_gemm/64x64/3/c2x1/group8", "Pair::swiglu"},
    {"cluster of columns", kQwen3, "tma_gemm/64x256/3/c1x2/group8", "residual = true"},
    {"q and k normed", kQwen3, "qkv_attention/64x128+wgmma64x64.4.2.2/8/c2x1/group16"},
    {"two heads normed", kQwen3, "qkv_attention/64x256+wgmma64x64.4.2.2/4/c1x2/group16"},
    {"q, k and v biased", kQwen2, "qkv_attention/64x128+wgmma64x64.4.2.1.keep/6/c1x1/group16"},
    {"neighbours turned", kOdd, "qkv_attention/64x256+wgmma64x64.4.2.3/4/c1x1/group16"},
    {"attention of a token", kDecode, "attention/mma256x16/min1/256", "", "rms_norm"},
    {"attention of warps", kOdd, "prefill_attention/mma16x16/1/2/3/keep"},
    {"attention of teams", kLlama, "prefill_attention/mma16x128/4/2/1/split4"},
    {"attention of groups", kQwen3, "prefill_attention/wgmma64x64/4/3/1", "",
     "window=40; v0 = rms_norm"},
    {"plain attention", kMistral, "prefill_attention/scalar16x128/2/1/1"},
    {"teams that read codes", kLlamaCodes, "prefill_attention/mma16x128/4/2/1/split4"},
    {"plain attention to codes", kQwen3Codes, "prefill_attention/scalar16x128/2/1/1", "",
     "window=40 fp8; v0 = rms_norm"},
    {"split sums", kOdd, "mma_gemm/128x64x32/32x32/6/group4/1/split2"},
    {"sums of groups", kOdd, "mma_gemm/wgmma64x64x64/16x64/8/group8/2"},
    {"pair by warps", kLlama, "mma_gemm/32x64x128/32x32/4/group4/1", "Pair::swiglu"},
    {"layer norm", kRows, "norm/block64/registers/v8/256"},
    {"layer norm by Welford", kRows, "norm/block64/registers/v8/128/welford"},
    {"rms norm", kOdd, "norm/warp64/shared/v1/64"},
    {"rms norm of a token", kOddDecode, "norm/warp64/shared/v1/64"},
    {"softmax", kRows, "softmax/warp128/registers2/v8/256"},
    {"embedding", kOdd, "embedding/128/v8/128"},
    {"gemv of registers", kLlamaDecode, "gemv/R128x2x4/128", "Pair::swiglu"},
    {"gemv of q, k and v", kLlamaDecode, "gemv/S1024x1x5/1024", "matrices = 3"},
    {"gemv by bulk copies", kOddDecode, "gemv/B1024x1x2x2/1024", "residual = true"},
    {"gemv of a head", kOddDecode, "gemv/S1024x1x5/1024", "argmax = true"},
    {"gemv without a ring", kOddDecode, "gemv/N1024x1x1/1024/split2", "bias = true"},
    {"gemv of int4", kInt4Decode, "gemv/S128x2x5/128", "Pair::swiglu"},
    {"gemv of int4 by copies", kInt4Decode, "gemv/S128x1x5/128", "residual = true",
     "weight f32[192, 256]"},
    {"gemv of int4 without a ring", kInt4Decode, "gemv/N128x1x1/128/split2", "residual = true",
     "weight f32[192, 344]"},
    {"heads of fp8", kFp8, "qkv_attention/64x128+wgmma64x64.4.2.2/6/c1x2/group16"},
    {"heads of nvfp4", "layers of nvfp4, prefill",
     "qkv_attention/64x128+wgmma64x64.4.2.2/6/c1x1/group16"},
    {"tiles of fp8", kFp8, "tma_gemm/64x64/4/c1x1/group8", "residual = true"},
    {"product of int4", kInt4, "gemm/8x32x16/2x4/2/256", "Pair::swiglu"},
    {"plain product", kOdd, "gemm/8x32x16/2x4/2/256", "residual = true"},
    {"plain pair", kLlama, "gemm/32x64x16/8x8/1/256", "Pair::swiglu"},
    {"four inputs", kRows, "elementwise/128/v8x1/128", "inputs = 4"},
    {"capped logits", kOdd, "elementwise/1024/v8x1/1024", "inputs = 1", "tanh"},
    {"mean", kRows, "reduction/block128/once/v8/128", "Fold::mean"},
    {"maximum", kRows, "reduction/block128/once/v8/128", "Fold::max"},
    {"sampling", kOddDecode, "sampling/1024/v8/1024"},
    {"layers", "layers, decode", "layers/4x2.2.1/3"},
    {"layers of int4", "layers of int4, decode", "layers/16x1.1.3/12"},
    {"layers of awq", "layers of awq, decode", "layers/4x1.1.2/3"},
    {"layers of mxfp4", "layers of mxfp4, decode", "layers/4x1.1.2/3"},
    {"layers of nvfp4", "layers of nvfp4, decode", "layers/4x1.1.2/3"},
    {"layers of int8", "layers of int8, decode", "layers/4x1.1.2/3"},
    {"layers of fp8", "layers of fp8, decode", "layers/4x1.1.2/3"},
    {"layers with an fp8 cache", "layers with an fp8 cache, decode", "layers/4x1.1.2/3"},
};
constexpr const char *kDraw = "draw", *kMask = "mask";
// A case of these, as it takes several rows at once.
constexpr const char* kOfRows = "rows of ";
constexpr const char* kInRows[] = {"attention of a token", "rms norm of a token"};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// An op of the table that is left to the fallback.
constexpr const char* kFallback = "fallback ";
constexpr const char *kFallbackOfCodes = "linear of int4", *kFallbackOfFloats = "linear of nvfp4",
                     *kFallbackOfListed = "linear of listed columns",
                     *kFallbackOfMinima = "linear of minima",
                     *kFallbackOfSix = "linear of six bits";
constexpr const char* kFallbacks[] = {"softmax",
                                      "layer_norm",
                                      "linear",
                                      "embedding",
                                      "append_attend",
                                      "rope",
                                      "amax",
                                      "sum",
                                      kFallbackOfCodes,
                                      kFallbackOfFloats,
                                      kFallbackOfListed,
                                      kFallbackOfMinima,
                                      kFallbackOfSix};

// A pair or one product of codes whose last step, last group and last tile are parts of one.
constexpr const char *kTilesOfCodes = "tiles of int4", *kColumnsOfInt4 = "columns of int4",
                     *kColumnsOfFp8 = "columns of fp8", *kColumnsOfGroups = "columns of groups",
                     *kTilesOfNvfp4 = "tiles of nvfp4", *kColumnsOfNvfp4 = "columns of nvfp4",
                     *kColumnsOfMxfp4 = "columns of mxfp4", *kGemvOfNvfp4 = "gemv of nvfp4",
                     *kProductOfMxfp4 = "product of mxfp4", *kGemvOfMinima = "gemv of minima",
                     *kColumnsOfMinima = "columns of minima", *kTilesOfMinima = "tiles of minima",
                     *kProductOfMinima = "product of minima", *kGemvOfSix = "gemv of six bits",
                     *kColumnsOfSix = "columns of six bits", *kTilesOfSix = "tiles of six bits",
                     *kProductOfSix = "product of six bits",
                     *kColumnsOfFive = "columns of five bits", *kColumnsOfRows = "columns of rows",
                     *kGemvOfListed = "gemv of listed columns",
                     *kProductOfListed = "product of listed columns";
constexpr const char* kOfCodes[] = {
    kTilesOfCodes,    kColumnsOfInt4,  kColumnsOfFp8,    kColumnsOfGroups, kTilesOfNvfp4,
    kColumnsOfNvfp4,  kColumnsOfMxfp4, kGemvOfNvfp4,     kProductOfMxfp4,  kGemvOfListed,
    kProductOfListed, kGemvOfMinima,   kColumnsOfMinima, kTilesOfMinima,   kProductOfMinima,
    kGemvOfSix,       kColumnsOfSix,   kTilesOfSix,      kProductOfSix,    kColumnsOfFive,
    kColumnsOfRows};
constexpr const char *kNvfp4 = "e2m1_g16_f8e4m3_global", *kMxfp4 = "e2m1_g32_f8e8m0",
                     *kMinima = "u4_g16_i8_in256_minima", *kSix = "u6_g16_i8_in256",
                     *kFive = "u5_g32_i8_in256_minima";

StepGraph products_of_codes(const char* name, FileLayout layout, DType dtype, const Dim& tokens,
                            bool is_pair, std::int64_t inner = 352, bool norm = false) {
  constexpr std::int64_t kRows = 69;
  const Format format = find_format(name)->format;
  StepGraph step;
  Builder b(step.graph);
  NodeId x = b.input("x", {dtype, {tokens, inner}});
  if (norm) x = b.rms_norm(x, b.weight("norm", {dtype, {inner}}), 1e-6, 0);
  const auto product = [&](const char* key) {
    return b.linear(x, b.weight(key, {dtype, {kRows, inner}}, format, layout));
  };
  const NodeId first = product("first");
  step.graph.outputs.push_back(
      {"y", is_pair ? b.binary(Op::mul, b.unary(Op::silu, first), product("second")) : first});
  return step;
}

test::Admission products_of_codes(const std::string& name) {
  if (name == kTilesOfCodes)
    return test::admission_of_whole_step<TmaGemmTask>(
        name, products_of_codes("u4_g96_f16_zeros", FileLayout::awq, DType::f16, Symbol::T, true),
        false, {.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_n = 2}, kTokens);
  if (name == kColumnsOfInt4)
    return test::admission_of_whole_step<MmaGemvTask>(
        name, products_of_codes("u4_g96_f16_zeros", FileLayout::awq, DType::f16, 1, true), false,
        {.threads = 64, .depth = 3, .split = 2, .resident = 1}, 1);
  if (name == kColumnsOfGroups)
    return test::admission_of_whole_step<MmaGemvTask>(
        name,
        products_of_codes("u4_g64_bf16", FileLayout::packed, DType::bf16, 1, false, 768, true),
        false, {.threads = 64, .rows = 8, .depth = 2, .split = 2, .resident = 1}, 1);
  if (name == kTilesOfNvfp4)
    return test::admission_of_whole_step<TmaGemmTask>(
        name, products_of_codes(kNvfp4, FileLayout::modelopt, DType::bf16, Symbol::T, true), false,
        {.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_n = 2}, kTokens);
  if (name == kColumnsOfNvfp4)
    return test::admission_of_whole_step<MmaGemvTask>(
        name, products_of_codes(kNvfp4, FileLayout::packed_fp4, DType::bf16, 1, false, 768), false,
        {.threads = 64, .rows = 8, .depth = 2, .split = 2, .resident = 1}, 1);
  if (name == kColumnsOfMxfp4)
    return test::admission_of_whole_step<MmaGemvTask>(
        name, products_of_codes(kMxfp4, FileLayout::packed_fp4, DType::f16, 1, true, 512), false,
        {.threads = 64, .depth = 3, .split = 2, .resident = 1}, 1);
  if (name == kGemvOfNvfp4)
    return test::admission_of_whole_step<GemvTask>(
        name, products_of_codes(kNvfp4, FileLayout::packed_fp4, DType::bf16, 1, true), false,
        {.threads = 64, .rows = 2, .depth = 2, .resident = 64}, 1);
  const auto of_blocks = [](const char* format, DType dtype, const Dim& tokens, bool is_pair) {
    return products_of_codes(format, FileLayout::gguf, dtype, tokens, is_pair, 768);
  };
  if (name == kGemvOfMinima || name == kGemvOfSix)
    return test::admission_of_whole_step<GemvTask>(
        name, of_blocks(name == kGemvOfSix ? kSix : kMinima, DType::bf16, 1, true), false,
        {.threads = 64, .rows = 2, .depth = 2, .resident = 64}, 1);
  if (name == kColumnsOfMinima || name == kColumnsOfSix)
    return test::admission_of_whole_step<MmaGemvTask>(
        name, of_blocks(name == kColumnsOfSix ? kSix : kMinima, DType::bf16, 1, false), false,
        {.threads = 64, .rows = 8, .depth = 2, .split = 2, .resident = 1}, 1);
  if (name == kColumnsOfRows)
    return test::admission_of_whole_step<MmaGemvTask>(
        name, products_of_codes("plain", {}, DType::bf16, 1, true, 840, true), false,
        {.threads = 64, .rows = 4, .depth = 2, .split = 2, .resident = 1}, 1);
  if (name == kColumnsOfFive)
    return test::admission_of_whole_step<MmaGemvTask>(
        name, of_blocks(kFive, DType::f16, 1, true), false,
        {.threads = 64, .depth = 3, .split = 2, .resident = 1}, 1);
  if (name == kTilesOfMinima || name == kTilesOfSix)
    return test::admission_of_whole_step<TmaGemmTask>(
        name, of_blocks(name == kTilesOfSix ? kSix : kMinima, DType::bf16, Symbol::T, true), false,
        {.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 1, .cluster_n = 2}, kTokens);
  if (name == kProductOfMinima || name == kProductOfSix)
    return test::admission_of_whole_step<GemmTask>(
        name, of_blocks(name == kProductOfSix ? kSix : kMinima, DType::f16, Symbol::T, false),
        false, {.tile_m = 16, .tile_n = 32, .tile_k = 16, .thread_m = 2, .thread_n = 4}, kTokens);
  constexpr const char* kListed = "u4_g32_f16_zeros_listed";
  if (name == kGemvOfListed)
    return test::admission_of_whole_step<GemvTask>(
        name, products_of_codes(kListed, FileLayout::gptq_v2, DType::f16, 1, true), false,
        {.threads = 64, .rows = 2, .depth = 1, .ring = kernels::Ring::none, .resident = 64}, 1);
  if (name == kProductOfListed)
    return test::admission_of_whole_step<GemmTask>(
        name, products_of_codes(kListed, FileLayout::packed, DType::f16, Symbol::T, true, 70),
        false, {.tile_m = 16, .tile_n = 32, .tile_k = 16, .thread_m = 2, .thread_n = 4}, kTokens);
  if (name == kProductOfMxfp4)
    return test::admission_of_whole_step<GemmTask>(
        name, products_of_codes(kMxfp4, FileLayout::packed_fp4, DType::f16, Symbol::T, false, 70),
        false, {.tile_m = 16, .tile_n = 32, .tile_k = 16, .thread_m = 2, .thread_n = 4}, kTokens);
  return test::admission_of_whole_step<MmaGemvTask>(
      name, products_of_codes("e4m3_128x128", FileLayout::compressed, DType::bf16, 1, false), false,
      {.threads = 64, .rows = 8, .depth = 3, .split = 1, .resident = 1}, 1);
}

// Products of a few tokens: of a block's, and of one with fewer.
constexpr const char *kGemvOfTokens = "gemv of five tokens",
                     *kBareGemvOfTokens = "gemv without a norm of four tokens",
                     *kGemvOfCodesOfTokens = "gemv of int4 of four tokens",
                     *kSlowGemvOfTokens = "gemv without a ring of three tokens",
                     *kColumnsOfTokens = "columns of six tokens",
                     *kPiecesOfTokens = "pieces of rows of five tokens",
                     *kHalvesOfTokens = "halves of vectors of five tokens",
                     *kMinimaOfTokens = "columns of minima of eight tokens",
                     *kRowsOfTokens = "quarters of rows of five tokens";
constexpr const char* kOfTokens[] = {kGemvOfTokens,     kBareGemvOfTokens, kGemvOfCodesOfTokens,
                                     kSlowGemvOfTokens, kColumnsOfTokens,  kPiecesOfTokens,
                                     kHalvesOfTokens,   kMinimaOfTokens,   kRowsOfTokens};

test::Admission products_of_tokens(const std::string& name) {
  const auto gemv = [&](const StepGraph& step, const kernels::GemvPlan& plan) {
    return test::admission_of_whole_step<GemvTask>(name, step, false, plan, plan.tokens + 2);
  };
  const auto columns = [&](const StepGraph& step, const kernels::MmaGemvPlan& plan) {
    return test::admission_of_whole_step<MmaGemvTask>(name, step, false, plan, plan.tokens + 2);
  };
  const auto of_blocks = [](const char* format, DType dtype, bool is_pair) {
    return products_of_codes(format, FileLayout::gguf, dtype, Symbol::T, is_pair, 768);
  };
  if (name == kGemvOfTokens)
    return gemv(products_of_codes("plain", {}, DType::bf16, Symbol::T, true, 352, true),
                {.threads = 64, .rows = 2, .depth = 2, .split = 2, .resident = 64, .tokens = 5});
  if (name == kBareGemvOfTokens)
    return gemv(products_of_codes("plain", {}, DType::bf16, Symbol::T, false, 2080),
                {.threads = 64, .rows = 2, .depth = 2, .split = 2, .resident = 64, .tokens = 4});
  if (name == kGemvOfCodesOfTokens)
    return gemv(
        products_of_codes("u4_g96_f16_zeros", FileLayout::awq, DType::f16, Symbol::T, true, 384),
        {.threads = 64, .rows = 2, .depth = 2, .resident = 64, .tokens = 4});
  if (name == kSlowGemvOfTokens)
    return gemv(products_of_codes("plain", {}, DType::f16, Symbol::T, false, 70, true),
                {.threads = 64,
                 .rows = 2,
                 .depth = 1,
                 .ring = kernels::Ring::none,
                 .split = 2,
                 .resident = 64,
                 .tokens = 3});
  if (name == kColumnsOfTokens)
    return columns(
        products_of_codes("u4_g96_f16_zeros", FileLayout::awq, DType::f16, Symbol::T, true),
        {.threads = 64, .depth = 3, .split = 2, .resident = 1, .tokens = 6});
  if (name == kPiecesOfTokens)
    return columns(products_of_codes("u4_g64_bf16", FileLayout::packed, DType::bf16, Symbol::T,
                                     false, 768, true),
                   {.threads = 64, .rows = 8, .depth = 2, .split = 2, .resident = 1, .tokens = 5});
  if (name == kHalvesOfTokens)
    return columns(
        products_of_codes(kNvfp4, FileLayout::packed_fp4, DType::bf16, Symbol::T, false, 768),
        {.threads = 64, .rows = 8, .depth = 2, .split = 2, .resident = 1, .tokens = 5});
  if (name == kRowsOfTokens)
    return columns(products_of_codes("plain", {}, DType::f16, Symbol::T, false, 840),
                   {.threads = 64, .rows = 4, .depth = 2, .split = 1, .resident = 1, .tokens = 5});
  return columns(of_blocks(kFive, DType::f16, true),
                 {.threads = 64, .depth = 3, .split = 1, .resident = 1, .tokens = 8});
}

StepGraph linear_of_codes(const std::string& name, const char* format, FileLayout layout) {
  constexpr std::int64_t kRows = 33;
  const int outer = find_format(format)->format.outer;
  const std::int64_t inner = outer > 0 ? 2 * outer : 70;
  StepGraph step;
  Builder b(step.graph);
  const NodeId x = b.input("x", {DType::f16, {Dim(Symbol::T), inner}});
  const NodeId w = b.weight("w", {DType::f16, {kRows, inner}}, find_format(format)->format, layout);
  step.graph.outputs.push_back({name, b.linear(x, w, b.weight("bias", {DType::f16, {kRows}}))});
  return step;
}

test::Admission fallback_of(const std::string& op) {
  const StepGraph step =
      op == kFallbackOfCodes    ? linear_of_codes(op, "u4_g32_f16_zeros", FileLayout::awq)
      : op == kFallbackOfListed ? linear_of_codes(op, "u4_g32_f16_zeros_listed", FileLayout::gptq)
      : op == kFallbackOfMinima ? linear_of_codes(op, kMinima, FileLayout::gguf)
      : op == kFallbackOfSix    ? linear_of_codes(op, kSix, FileLayout::gguf)
      : op == kFallbackOfFloats ? linear_of_codes(op, kNvfp4, FileLayout::modelopt)
                                : test::step_of_all_ops();
  const auto output = std::ranges::find(step.graph.outputs, op, &Output::name);
  AC_ASSERT(output != step.graph.outputs.end());
  const Region region = std::get<Region>(make_region(step, {output->node}));
  return test::admission_of_fallback(step, region, 7);
}

test::Admission admission_of_plan(const std::string& name, int rows) {
  const PlanCase* const wanted = std::ranges::find(kCases, name, &PlanCase::name);
  AC_ASSERT(wanted != std::end(kCases));
  const auto models = test::family_models(kTokens);
  const auto model = std::ranges::find(models, wanted->model, &test::FamilyModel::name);
  AC_ASSERT(model != models.end());
  const Regions regions = analyse(model->step);
  PlanOptions options;
  options.at = {.S = -1, .T = model->tokens, .P = 64};
  options.max_candidates = std::numeric_limits<std::size_t>::max();
  const std::string id = wanted->candidate;
  options.families = {id.substr(0, id.find('/'))};
  // The host device has too few multiprocessors for parts of K. Layers have as many blocks as
  // there are: here, few.
  const bool is_of_layers = options.families[0] == LayersTask::family;
  const Plans plans = plan(regions, device_info(is_of_layers ? "host" : "sm_90"), options);
  for (const CoverPart& part : parts_of_all_cuts(regions, plans)) {
    if (part.space < 0) continue;
    const Space& space = plans.spaces[static_cast<std::size_t>(part.space)];
    if (!contains(space.signature, wanted->region)) continue;
    for (const Candidate& candidate : space.candidates)
      if (candidate.id == id && contains(op_text(candidate.choice), wanted->op))
        if (auto all =
                test::admission_of(regions.step, part.wanted, candidate, model->tokens, rows))
          return std::move(*all);
  }
  job_failed("{}: {} has no {}", name, wanted->model, id);
}

}  // namespace

std::vector<std::string> plan_case_names() {
  std::vector<std::string> names{kDraw, kMask};
  names.insert(names.end(), std::begin(kOfCodes), std::end(kOfCodes));
  names.insert(names.end(), std::begin(kOfTokens), std::end(kOfTokens));
  for (const char* op : kFallbacks) names.push_back(std::string(kFallback) + op);
  for (const PlanCase& one : kCases) names.emplace_back(one.name);
  for (const char* one : kInRows) names.push_back(std::string(kOfRows) + one);
  return names;
}

test::Admission admission_of_case(const std::string& name) {
  if (name.starts_with(kOfRows)) {
    constexpr int kRows = 3;
    test::Admission all = admission_of_plan(name.substr(std::string(kOfRows).size()), kRows);
    all.quick = trial_of_rows(std::move(all.quick)).value();
    for (Request& request : all.confirmation) request = trial_of_rows(std::move(request)).value();
    return all;
  }
  if (name == kDraw) return test::admission_of_draw(DType::f16, 20000);
  if (name == kMask) return test::admission_of_mask(DType::bf16, 20011);
  for (const char* one : kOfCodes)
    if (name == one) return products_of_codes(name);
  for (const char* one : kOfTokens)
    if (name == one) return products_of_tokens(name);
  if (name.starts_with(kFallback)) return fallback_of(name.substr(std::string(kFallback).size()));
  return admission_of_plan(name, 1);
}

}  // namespace ac::kernels
