// Products of q, k and v with the attention behind them, as one region: where it is proposed, what
// it costs and is refused for, its launches and its trial. The kernel itself: test_qkv_rope.cc.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "admit/trial.h"
#include "admit/trials.h"
#include "analyze/fragment.h"
#include "families/list.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "plan/cover.h"
#include "plan/planner.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

const std::string kFused = "linear+linear+linear+rms_norm+rms_norm+rope+rope+append_attend";

Plans plans_of(const Regions& regions, std::int64_t tokens, const std::string& target,
               std::vector<std::string> families = {}) {
  return plan(regions, device_info(target),
              {.families = std::move(families), .at = {.S = -1, .T = tokens, .P = 0}});
}

const FusionOption* find(const Plans& plans, const std::string& text) {
  for (const Neighbourhood& around : plans.neighbourhoods)
    for (const FusionOption& option : around.options)
      if (option.text == text && !option.refused) return &option;
  return nullptr;
}

bool has_projections(const Plans& plans) {
  return std::ranges::any_of(plans.neighbourhoods, [](const Neighbourhood& around) {
    return around.kind == Neighbourhood::Kind::projections;
  });
}

struct Fused {
  const Part* part = nullptr;
  const Space* space = nullptr;
};
Fused fused(const Plans& plans, const std::string& text = kFused) {
  const FusionOption* option = find(plans, text);
  REQUIRE(option != nullptr);
  REQUIRE(option->parts.size() == 1);
  return {&option->parts[0], &plans.spaces[static_cast<std::size_t>(option->parts[0].space)]};
}
const Implementation<QkvAttentionTask>& implementation(const Candidate& candidate) {
  return std::get<Implementation<QkvAttentionTask>>(candidate.choice);
}

// Attention of four heads of 16 and two KV heads by itself: by three products, or by one whose keys
// and values start there.
struct Starts {
  std::int64_t k = 64, v = 96;
};
StepGraph attention_step(DType dtype, std::optional<Starts> one = {}) {
  const Dim T(Symbol::T);
  StepGraph step;
  step.graph.name = "part";
  Builder b(step.graph);
  const NodeId x = b.input("x", {dtype, {T, Dim(64)}});
  const auto product = [&](const std::string& key, std::int64_t rows) {
    return b.linear(x, b.weight(key, {dtype, {Dim(rows), Dim(64)}}));
  };
  std::array<NodeId, 3> parts = {};
  if (one) {
    const NodeId all = product("qkv", 128);
    parts = {b.slice(all, 1, 0, 64), b.slice(all, 1, one->k, one->k + 32),
             b.slice(all, 1, one->v, one->v + 32)};
  } else {
    parts = {product("q", 64), product("k", 32), product("v", 32)};
  }
  const auto heads = [&](std::size_t i) {
    return b.reshape(parts[i], {T, Dim(i == 0 ? 4 : 2), Dim(16)});
  };
  step.states.push_back(kv_state(dtype, 2, 16, 16, 0, "attn"));
  const NodeId y = b.append_attend(heads(0), heads(1), heads(2), 0, 0.25, 0, 0.0);
  step.graph.outputs = {{"y", y}};
  return step;
}

// Why the family does not take the region that is the whole of a step.
std::string refusal(const StepGraph& step) {
  const Regions regions = analyse(step);
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (is_compute(step.graph.nodes[i])) nodes.push_back(static_cast<NodeId>(i));
  const auto made = make_region(regions.step, nodes);
  REQUIRE(std::holds_alternative<Region>(made));
  for (const FamilyMatch& found :
       match_families(regions.step, {std::get<Region>(made)}, {.T = 8, .P = 0}))
    if (found.family == QkvAttentionTask::family)
      if (const auto* why = std::get_if<std::string>(&found.match)) return *why;
  return "";
}

}  // namespace

TEST_CASE("q, k and v with attention are one region of many tokens, where the copy engine is") {
  const Regions prefill = analyse(published("qwen3-1.7b", false));
  const Plans plans = plans_of(prefill, 8192, "sm_90");
  const Fused all = fused(plans);
  REQUIRE(!all.space->candidates.empty());
  for (const Candidate& candidate : all.space->candidates) {
    CHECK(family_of(candidate.choice) == "qkv_attention");
    CHECK(why_illegal(candidate.choice, device_info("sm_90")) == nullptr);
    CHECK(why_illegal(candidate.choice, device_info("sm_80")) != nullptr);
    CHECK(implementation(candidate).plan.tile_n % 128 == 0);
  }
  CHECK(all.space->illegal.count("qkv_attention: a tile must have whole heads") == 1);
  // As large tiles as the product takes by itself.
  CHECK(all.space->candidates[0].id.starts_with("qkv_attention/128x256+wgmma"));
  CHECK(implementation(all.space->candidates[0]).task.shape.rows[0] == 2048);

  CHECK(!has_projections(plans_of(prefill, 8192, "sm_80")));
  CHECK(!has_projections(plans_of(prefill, 8192, "host")));
  CHECK(!has_projections(plans_of(prefill, 8192, "sm_90", {"tma_gemm", "prefill_attention"})));
  CHECK(!has_projections(plans_of(analyse(published("qwen3-1.7b", true)), 1, "sm_90")));
  // Who names it gets it anywhere.
  CHECK(has_projections(plans_of(prefill, 512, "host", {"qkv_attention"})));
}

TEST_CASE("a cover takes products with attention where that costs less, and else leaves them") {
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = plans_of(regions, 2048, "sm_90");
  const int whole = fused(plans).part->space;
  const FusionOption* apart =
      find(plans, "linear+linear+linear | rms_norm+rms_norm+rope+rope+append_attend");
  REQUIRE(apart != nullptr);
  const auto uses = [&](double price, int space) {
    const auto parts = choose_cover(regions, plans, [&](int of) -> std::optional<double> {
      if (of < 0) return std::nullopt;
      if (of == whole) return price;
      const Space& any = plans.spaces[static_cast<std::size_t>(of)];
      return any.candidates.empty() ? std::nullopt : std::optional(1.0);
    });
    return std::ranges::count_if(parts, [&](const CoverPart& part) { return part.space == space; });
  };
  CHECK(uses(1.5, whole) == 28);
  CHECK(uses(1.5, apart->parts[1].space) == 0);
  CHECK(uses(2.5, whole) == 0);
  CHECK(uses(2.5, apart->parts[0].space) == 28);
  CHECK(uses(2.5, apart->parts[1].space) == 28);
}

TEST_CASE("products apart from attention are near the two together, whatever was not tried") {
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = plans_of(regions, 8192, "sm_90");
  const int whole = fused(plans).part->space;
  const FusionOption* apart =
      find(plans, "linear+linear+linear | rms_norm+rms_norm+rope+rope+append_attend");
  REQUIRE(apart != nullptr);
  // What was measured in a race on an H100; norms by themselves and their neighbours were not.
  std::map<int, double> measured{
      {whole, 940.9}, {apart->parts[0].space, 204.6}, {apart->parts[1].space, 782.6}};
  const auto near = near_cuts(regions, plans, [&](int of) -> std::optional<double> {
    const auto found = measured.find(of);
    return found == measured.end() ? std::nullopt : std::optional(found->second);
  });
  REQUIRE(near.size() == 2);
  CHECK(near[1].what == apart->text);
  for (const Part& part : apart->parts)
    CHECK(std::ranges::count(near[1].parts, part.space, &CoverPart::space) == 28);
}

TEST_CASE("both kernels of qkv_attention have their price") {
  const DeviceInfo device = device_info("sm_90");
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = plans_of(regions, 8192, "sm_90");
  const Candidate& best = fused(plans).space->candidates[0];
  const auto& [task, plan] = implementation(best);
  const double product =
      predict(Implementation<TmaGemmTask>{{task.op.product, task.shape}, plan.product()}, device)
          .microseconds;
  const double attention =
      predict(Implementation<PrefillAttentionTask>{task.attention, plan.attention()}, device)
          .microseconds;
  CHECK(best.cost.microseconds > product);
  CHECK(best.cost.microseconds > attention);
  // Norm, RoPE and append are a small part of it.
  CHECK(best.cost.microseconds < (product + attention) * 1.05);
  CHECK(best.cost.flops > 1.5 * 8192 * 4096 * 2048);
  CHECK(id_of(Implementation<QkvAttentionTask>{task, {.keep_queries = true}}) ==
        "qkv_attention/128x256+wgmma64x64.4.2.2.keep/4/c2x1/group8");
  const auto fields = plan_fields(best.choice);
  CHECK(fields.size() == 14);
  CHECK(fields[0].name == "tile_m");
  CHECK(fields[6].name == "tile");
}

TEST_CASE("qkv_attention leaves queries in its workspace, and keys and values in the cache") {
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = plans_of(regions, 2048, "sm_90");
  const Fused all = fused(plans);
  const Candidate& candidate = all.space->candidates[0];
  const std::vector<std::int64_t> slots(regions.step.states.size(), 4096);
  const Generated made = generate_for(regions.step, all.part->wanted, candidate.choice,
                                      plans.options.at, {132, slots});
  REQUIRE(made.launches.size() == 2);
  REQUIRE(made.sources.size() == 2);
  CHECK(made.sources[0].text.find("#include \"kernels/qkv_rope.cuh\"") != std::string::npos);
  CHECK(made.sources[0].text.find(
            ".append = {.type = Type::bf16, .head_dim = 128, "
            ".qk_norm = true, .rotary = 128, .interleaved = false, .fp8 = false}}") !=
        std::string::npos);
  const Launch &products = made.launches[0], &attention = made.launches[1];
  using Params = kernels::QkvRopeParams;
  CHECK(products.params.size() == sizeof(Params));
  CHECK(products.maps.size() == 4);
  CHECK(products.grid[0].at(8192) == 132);
  const auto buffer = [&](const Launch& launch, std::size_t at) {
    const auto found = std::ranges::find(launch.pointers, at, &Launch::Pointer::at);
    REQUIRE(found != launch.pointers.end());
    return made.buffers.at(static_cast<std::size_t>(found->buffer));
  };
  const auto left = buffer(products, offsetof(Params, q_out));
  CHECK(left.is_workspace());
  CHECK(left.bytes.at(100) == 2 * 100 * 2048);
  CHECK(buffer(attention, offsetof(kernels::PrefillAttentionParams, q)) == left);
  // The copy engine brings the queries that the products leave, and the keys and values.
  REQUIRE(attention.maps.size() == 3);
  const kernels::PrefillAttentionPlan tiles = implementation(candidate).plan.attention();
  REQUIRE(tiles.tile == kernels::Tile::wgmma);
  for (const Launch::Map& map : attention.maps) {
    const bool queries = map.at == offsetof(kernels::PrefillAttentionParams, queries);
    CAPTURE(map.at);
    CHECK(map.rows.at(100) == (queries ? 100 : 8 * 4096));
    CHECK(map.columns == (queries ? 2048 : 128));
    CHECK(map.pitch == map.columns);
    CHECK(map.box_rows == (queries ? tiles.query_tile : tiles.key_tile));
    CHECK(map.dtype == DType::bf16);
  }
  const auto mapped = [&](std::size_t at) {
    const auto found = std::ranges::find(attention.maps, at, &Launch::Map::at);
    REQUIRE(found != attention.maps.end());
    return made.buffers.at(static_cast<std::size_t>(found->buffer));
  };
  CHECK(mapped(offsetof(kernels::PrefillAttentionParams, queries)) == left);
  const auto is_tensor = [](const Buffer& of, std::size_t tensor) {
    return of.role == Buffer::Role::state && of.tensor == static_cast<std::int32_t>(tensor);
  };
  CHECK(is_tensor(mapped(offsetof(kernels::PrefillAttentionParams, keys)), kKeys));
  CHECK(is_tensor(mapped(offsetof(kernels::PrefillAttentionParams, values)), kValues));
  CHECK(is_tensor(buffer(products, offsetof(Params, k_cache)), kKeys));
  CHECK(is_tensor(buffer(products, offsetof(Params, v_cache)), kValues));
  CHECK(buffer(products, offsetof(Params, position)).role == Buffer::Role::position);
  Params params;
  std::memcpy(static_cast<void*>(&params), products.params.data(), sizeof params);
  CHECK(params.heads == 16);
  CHECK(params.kv_heads == 8);
  CHECK(params.capacity == 4096);
  CHECK(params.norm_eps == 1e-6f);
  CHECK(params.rope_scale == 1);
  // The products themselves are nowhere.
  for (const Launch::Pointer& pointer : products.pointers)
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(pointer.at != offsetof(Params, product.gemm.matrix) + i * sizeof(kernels::GemmMatrix) +
                              offsetof(kernels::GemmMatrix, y));
}

TEST_CASE("a trial of qkv_attention has few heads, in whole groups, and a tile that is cut") {
  const Regions regions = analyse(published("qwen3-1.7b", false));
  const Plans plans = plans_of(regions, 2048, "sm_90");
  const Fused all = fused(plans);
  for (std::size_t i = 0; i < 3; ++i) {
    const Candidate& candidate = all.space->candidates[i];
    const int heads = implementation(candidate).plan.tile_n / 128 + 1;
    const auto request = trial_of(regions.step, all.part->wanted, candidate, {2048, {132, {}}});
    REQUIRE(request);
    const Trial& trial = request->trial;
    CHECK_NOTHROW(verify(trial, "trial"));
    CHECK(trial.spreads);
    const QkvAttentionPlan& plan = implementation(candidate).plan;
    CHECK(trial.tokens == std::max(plan.tile_m, plan.query_tile) + 5);
    const StepGraph step = parse_step(trial.step, "trial");
    CHECK(kv_sizes(step.states.at(0)).heads == heads);
    CHECK(trial.step.find(fmt::format("bf16[{}, 2048]", 2 * heads * 128)) != std::string::npos);
    CHECK(trial_from_json(to_json(trial), "trial").launches == trial.launches);
  }
}

// Of attention: how many cached keys its places hold at once, before any is used again.
std::int64_t keys_at_once(const Candidate& candidate) {
  if (const auto* made = std::get_if<Implementation<PrefillAttentionTask>>(&candidate.choice))
    return std::int64_t{made->plan.stages} * made->plan.key_tile;
  const auto& [task, plan] = std::get<Implementation<AttentionTask>>(candidate.choice);
  return std::int64_t{plan.splits} * plan.warps() * plan.tile_tokens(task.op);
}

std::int64_t min_tiles(const Candidate& candidate) {
  const auto* made = std::get_if<Implementation<AttentionTask>>(&candidate.choice);
  return made ? made->plan.min_tiles : 1;
}

TEST_CASE("a trial of attention has twice the keys that its plan holds at once, and few heads") {
  for (const bool decode : {false, true}) {
    const Regions regions = analyse(published("qwen3-1.7b", decode));
    const std::string family = decode ? "attention" : "prefill_attention";
    const Plans plans = plans_of(regions, decode ? 1 : 2048, "sm_90", {family});
    int seen = 0;
    for (const CoverPart& part : parts_of_all_cuts(regions, plans)) {
      const Space& space = plans.spaces[static_cast<std::size_t>(part.space)];
      for (std::size_t i = 0; i < space.candidates.size(); i += 5) {
        const Candidate& candidate = space.candidates[i];
        if (family_of(candidate.choice) != family) continue;
        ++seen;
        CAPTURE(candidate.id);
        const auto trial_with = [&](std::vector<std::int64_t> slots) {
          return trial_of(regions.step, part.wanted, candidate, {2048, {132, slots}})->trial;
        };
        const Trial trial = trial_with({});
        const std::int64_t heads = kv_sizes(parse_step(trial.step, "trial").states.at(0)).heads;
        CHECK(heads <= 2);
        CHECK(trial.capacity >= trial.positions.back() + trial.tokens);
        // As many as can be judged in a short time.
        const std::int64_t keys = keys_at_once(candidate), most = 2'500'000 / (heads * 256);
        CHECK(trial.positions.back() >= std::min(2 * keys, most));
        // Where a tile ends, and where it begins, as the step's last.
        const auto is_met = [&](std::int64_t keys_seen) {
          return std::ranges::count(trial.positions, keys_seen - trial.tokens) > 0;
        };
        const std::int64_t round = keys * min_tiles(candidate);
        if (round <= trial.positions.back() - 1 && round > trial.tokens)
          for (const std::int64_t near : {-1, 0, 1}) CHECK(is_met(round + near));
        // More than the package's cache holds are never met.
        CHECK(trial_with({100}).positions.back() <= (decode ? 260 : 100));
      }
    }
    CHECK(seen > 20);
  }
}

TEST_CASE("q, k and v may be parts of one product, in their order and nothing between") {
  const StepGraph step = attention_step(DType::f16, Starts{});
  CHECK(refusal(step) == "");
  for (const Starts& starts : {Starts{96, 64}, Starts{64, 80}})
    CHECK(refusal(attention_step(DType::f16, starts)) ==
          "rows of q, k and v do not follow each other");
  const StepGraph fewer = with_fewer_heads(step, 1);
  CHECK(kv_sizes(fewer.states[0]).heads == 1);
  const std::string text = print(fewer);
  CHECK(text.find("f16[64, 64]") != std::string::npos);
  CHECK(text.find("start=32, end=48") != std::string::npos);
  CHECK(text.find("start=48, end=64") != std::string::npos);
  CHECK(print(with_fewer_heads(step, 2)) == print(step));
}

TEST_CASE("what qkv_attention cannot do has a reason") {
  CHECK(refusal(attention_step(DType::f16)) == "");
  CHECK(refusal(attention_step(DType::f32)).find("16-bit") != std::string::npos);
  const auto proposed = [](const StepGraph& step) {
    return has_projections(plans_of(analyse(step), 64, "sm_90"));
  };
  CHECK(proposed(attention_step(DType::f16)));
  CHECK(!proposed(gemma_like(1, Dim(Symbol::T))));  // heads of 8
  CHECK(!proposed(gpt2_like(1, Dim(Symbol::T))));
}
