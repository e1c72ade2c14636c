// Whole layers as one region: where a step has them, when the kernel is planned, its launches and
// its trial. The kernel itself: test_layers.cc.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "admit/judge.h"
#include "admit/trials.h"
#include "analyze/analyse.h"
#include "analyze/layers.h"
#include "capture/native.h"
#include "families/list.h"
#include "ir/builder.h"
#include "ir/graph_text.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "plan/cover.h"
#include "plan/planner.h"
#include "regions_models.h"

using namespace ac;
using namespace ac::test;

namespace {

StepGraph decode_of(const Json& json, KvStorage storage = KvStorage::elements) {
  const DecoderConfig config = parse_config(json, "config");
  return decode_instance(incrementalise(normalise(build_decoder(config, "model")), storage));
}
// A small decoder that the kernel knows.
Json small(int layers = 4) {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"torch_dtype", "bfloat16"},
          {"hidden_size", 128},
          {"intermediate_size", 192},
          {"num_hidden_layers", layers},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 64},
          {"vocab_size", 301},
          {"max_position_embeddings", 512}};
}
Json with(const char* key, const Json& value) {
  Json json = small();
  json[key] = value;
  return json;
}

// The same with weights of 4 bits.
Json small_of_codes(int hidden = 256) {
  Json json = small();
  json["hidden_size"] = hidden, json["intermediate_size"] = 512;
  json["quantization_config"] = Json::parse(
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
          "config_groups": {"all": {"targets": ["Linear"], "weights":
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}}}})");
  return json;
}

Plans plans_of(const Regions& regions, const std::string& target,
               std::vector<std::string> families = {}, bool shared = false) {
  return plan(
      regions, device_info(target),
      {.families = std::move(families), .at = {.S = -1, .T = 1, .P = 128}, .shared = shared});
}
const Neighbourhood* layers_in(const Plans& plans) {
  for (const Neighbourhood& around : plans.neighbourhoods)
    if (around.kind == Neighbourhood::Kind::layers) return &around;
  return nullptr;
}
const FusionOption& together(const Plans& plans) {
  const Neighbourhood* around = layers_in(plans);
  REQUIRE(around != nullptr);
  for (const FusionOption& option : around->options)
    if (option.fusion == Fusion::full) return option;
  FAIL("layers are not offered together");
  return around->options[0];
}
const Space& space_of(const Plans& plans, const Part& part) {
  return plans.spaces[static_cast<std::size_t>(part.space)];
}

// Why the family does not take all layers of the step as one region.
std::string refusal(const StepGraph& decode) {
  const Regions regions = analyse(decode);
  const UseDef uses(regions.step);
  const auto made = region_of_layers(uses, layers_of(uses));
  REQUIRE(std::holds_alternative<Region>(made));
  for (const FamilyMatch& found :
       match_families(regions.step, {std::get<Region>(made)}, {.T = 1, .P = 8}))
    if (found.family == LayersTask::family)
      if (const auto* why = std::get_if<std::string>(&found.match)) return *why;
  return "";
}

// Two layers with one product for q, k and v, and one for gate and up. `each_turns`: with
// frequencies of its own.
StepGraph fused_layers(bool each_turns = false) {
  constexpr std::int64_t kHidden = 128, kInter = 192, kHeads = 4, kKv = 2, kSize = 64;
  StepGraph step;
  step.graph.name = "fused";
  Builder b(step.graph);
  NodeId x = b.input("x", {DType::bf16, {1, kHidden}});
  const NodeId positions = b.positions(1);
  const auto frequencies = [&](double first) {
    return b.constant(DType::f32, {kSize / 2}, std::vector<double>(kSize / 2, first));
  };
  NodeId inv_freq = frequencies(0.5);
  for (const int layer : {0, 1}) {
    if (each_turns && layer > 0) inv_freq = frequencies(0.25);
    const auto weight = [&](const char* key, Shape shape) {
      return b.weight(fmt::format("{}{}", key, layer), {DType::bf16, std::move(shape)});
    };
    const auto product = [&](NodeId of, const char* key, std::int64_t rows, std::int64_t columns) {
      return b.linear(of, weight(key, {rows, columns}));
    };
    const NodeId qkv = product(b.rms_norm(x, weight("norm", {kHidden}), 1e-6, 0), "qkv",
                               (kHeads + 2 * kKv) * kSize, kHidden);
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return b.reshape(b.slice(qkv, 1, first * kSize, (first + count) * kSize), {1, count, kSize});
    };
    const auto turned = [&](NodeId value) { return b.rope(value, positions, inv_freq, 1, false); };
    step.states.push_back(
        kv_state(DType::bf16, kKv, kSize, kSize, 0, fmt::format("layer{}", layer)));
    const NodeId attended = b.append_attend(turned(heads(0, kHeads)), turned(heads(kHeads, kKv)),
                                            heads(kHeads + kKv, kKv), layer, 0.125, 0, 0.0);
    x = b.binary(Op::add, x,
                 product(b.reshape(attended, {1, kHeads * kSize}), "o", kHidden, kHeads * kSize));
    const NodeId both = product(b.rms_norm(x, weight("mlp_norm", {kHidden}), 1e-6, 0), "gate_up",
                                2 * kInter, kHidden);
    const NodeId act = b.unary(Op::silu, b.slice(both, 1, 0, kInter));
    x = b.binary(Op::add, x,
                 product(b.binary(Op::mul, act, b.slice(both, 1, kInter, 2 * kInter)), "down",
                         kHidden, kInter));
  }
  step.graph.outputs = {{"y", x}};
  return step;
}

struct Lowered {
  StepGraph step;
  Generated made;
  kernels::LayersParams params;

  Lowered(const StepGraph& decode, const kernels::LayersPlan& plan) : step(analyse(decode).step) {
    const UseDef uses(step);
    const Wanted wanted{std::get<Region>(region_of_layers(uses, layers_of(uses)))};
    for (const FamilyMatch& found : match_families(step, wanted, {.T = 1, .P = 8})) {
      if (found.family != LayersTask::family) continue;
      REQUIRE(std::holds_alternative<AnyMatched>(found.match));
      const auto& matched = std::get<Matched<LayersTask>>(std::get<AnyMatched>(found.match));
      made = matched.task.lower({step, {132, std::vector<std::int64_t>(step.states.size(), 512)}},
                                plan, matched.operands);
    }
    REQUIRE(made.launches.size() == 1);
    REQUIRE(launch().params.size() == sizeof params);
    std::memcpy(&params, launch().params.data(), sizeof params);
  }
  const Launch& launch() const { return made.launches[0]; }
  const Buffer& buffer(std::int32_t index) const {
    return made.buffers[static_cast<std::size_t>(index)];
  }
  // The map that becomes this one of the parameters.
  const Launch::Map& map(const kernels::TensorMap& field) const {
    const auto at = reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&params);
    for (const Launch::Map& map : launch().maps)
      if (map.at == static_cast<std::uint32_t>(at)) return map;
    FAIL("there is no such map");
    return launch().maps[0];
  }
  const Launch::Pointer& pointer(const void* field) const {
    const auto at = static_cast<const char*>(field) - reinterpret_cast<const char*>(&params);
    for (const Launch::Pointer& pointer : launch().pointers)
      if (pointer.at == static_cast<std::uint32_t>(at)) return pointer;
    FAIL("there is no such pointer");
    return launch().pointers[0];
  }
};

}  // namespace

TEST_CASE("layers end where one value is all that follows") {
  struct Case {
    const char* model;
    std::size_t layers;
  };
  for (const auto& [model, count] : {Case{"qwen3-1.7b", 28}, Case{"llama-3.1-8b", 32}}) {
    CAPTURE(model);
    const Regions decode = analyse(published(model, true));
    const UseDef uses(decode.step);
    const std::vector<Layer> layers = layers_of(uses);
    REQUIRE(layers.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto made = make_region(uses, layers[i], Behind::whatever);
      REQUIRE(std::holds_alternative<Region>(made));
      const Region& region = std::get<Region>(made);
      CHECK(region.states.size() == 1);
      CHECK(region.states[0].state == static_cast<std::int64_t>(i));
      REQUIRE(region.outputs.size() == 1);
      CHECK(decode.step.graph[region.outputs[0].value].op == Op::add);
      if (i == 0) continue;
      // What a layer reads is what the one before it leaves.
      CHECK(std::ranges::any_of(region.inputs, [&](const Parameter& input) {
        return input.value == layers[i - 1].back();
      }));
    }
    // Nothing follows a state in other regions.
    CHECK(std::holds_alternative<Boundary>(make_region(uses, layers[0])));
  }
  CHECK(layers_of(UseDef(analyse(decode_of(small(1))).step)).empty());
}

TEST_CASE("a region of layers says what one of them is, and can be cut to its first ones") {
  const Regions decode = analyse(decode_of(small()));
  const UseDef uses(decode.step);
  const std::vector<Layer> layers = layers_of(uses);
  const Region all = std::get<Region>(region_of_layers(uses, layers));
  const Region one = std::get<Region>(make_region(uses, layers[2], Behind::whatever));
  CHECK(all.layers == 4);
  CHECK(all.states.size() == 4);
  CHECK(all.signature == "4 layers, each: " + one.signature);
  CHECK(op_names(all) == std::vector<std::string>{"4 layers"});
  const Region two = first_layers(decode.step, all, 2);
  CHECK(two.layers == 2);
  CHECK(two.states.size() == 2);
  CHECK(two.inputs[0].value == all.inputs[0].value);
  CHECK(two.outputs[0].value == layers[1].back());
}

TEST_CASE(
    "layers are planned for one token on GPUs with maps, and elsewhere where they are named") {
  const Regions decode = analyse(published("qwen3-1.7b", true));
  const Plans plans = plans_of(decode, "sm_90");
  const FusionOption& option = together(plans);
  REQUIRE(option.parts.size() == 1);
  const Space& space = space_of(plans, option.parts[0]);
  REQUIRE(!space.candidates.empty());
  for (const Candidate& candidate : space.candidates) {
    CHECK(family_of(candidate.choice) == "layers");
    const auto& [task, plan] = std::get<Implementation<LayersTask>>(candidate.choice);
    CHECK(task.layers == 28);
    CHECK(plan.blocks == 132);
    CHECK(why_illegal(candidate.choice, device_info("sm_100")) != nullptr);
  }
  // The plan with the longest ring comes first.
  CHECK(outline_of(space.candidates[0].id) == "layers/132x1.1.2");
  CHECK(layers_in(plans_of(decode, "sm_100")) != nullptr);
  CHECK(layers_in(plans_of(decode, "sm_80")) == nullptr);
  CHECK(layers_in(plans_of(decode, "sm_90", {"gemv", "attention"})) == nullptr);
  CHECK(layers_in(plans_of(decode, "sm_90", {}, true)) == nullptr);
  CHECK(layers_in(plans_of(analyse(published("qwen3-1.7b", false)), "sm_90")) == nullptr);
  const Regions few = analyse(decode_of(small()));
  CHECK(layers_in(plans_of(few, "host")) == nullptr);
  CHECK(layers_in(plans_of(few, "host", {"layers"})) != nullptr);
}

TEST_CASE("more layers than a launch has are shared evenly by several") {
  const Regions decode = analyse(decode_of(small(36)));
  const Plans plans = plans_of(decode, "sm_90");
  const FusionOption& option = together(plans);
  CHECK(option.text == "18 layers | 18 layers");
  REQUIRE(option.parts.size() == 2);
  CHECK(option.parts[0].space == option.parts[1].space);
}

TEST_CASE("a cut has layers together or apart, whichever costs less, and both are near") {
  const Regions decode = analyse(decode_of(small()));
  const Plans plans = plans_of(decode, "sm_90");
  const int space = together(plans).parts[0].space;
  const auto costs = [&](double of_layers) -> SpaceCost {
    return [&plans, space, of_layers](int other) -> std::optional<double> {
      if (other == space) return of_layers;
      if (other < 0 || plans.spaces[static_cast<std::size_t>(other)].candidates.empty())
        return std::nullopt;
      return 1.0;
    };
  };
  const auto has_layers = [&](const std::vector<CoverPart>& parts) {
    return std::ranges::any_of(parts, [&](const CoverPart& part) { return part.space == space; });
  };
  // Apart, a layer has at least four kernels.
  const std::vector<CoverPart> cheap = choose_cover(decode, plans, costs(15));
  CHECK(has_layers(cheap));
  CHECK(cheap.size() <= 4);  // the embedding before, the norm and the head behind
  CHECK(!has_layers(choose_cover(decode, plans, costs(40))));
  const SpaceCost cost = costs(15);
  CHECK(!has_layers(choose_cover(decode, plans, cost, without_layers(decode, plans, cost))));
  for (const double of_layers : {1.0, 15.0, 100.0}) {
    const std::vector<NearCut> cuts = near_cuts(decode, plans, costs(of_layers));
    CHECK(std::ranges::count_if(cuts, [&](const NearCut& cut) { return has_layers(cut.parts); }) ==
          1);
    CHECK(cuts.size() > 1);
  }
}

TEST_CASE("what the kernel of layers cannot do has a reason") {
  CHECK(refusal(decode_of(small())) == "");
  CHECK(refusal(decode_of(with("torch_dtype", "float16"))) ==
        "an input's norm comes after the product: float16 overflows");
  CHECK(refusal(decode_of(with("torch_dtype", "float32"))) ==
        "hidden states and the cache must have 16 bits");
  CHECK(refusal(decode_of(with("attention_bias", true))) == "a product has a bias");
  CHECK(refusal(decode_of(with("hidden_size", 136))) == "sizes must be multiples of 64");
  CHECK(refusal(decode_of(with("num_attention_heads", 18))) == "tensor cores take groups up to 8");
  CHECK(refusal(decode_of(with("hidden_act", "gelu"))) == "the products of the MLP are no pair");
  CHECK(refusal(decode_of(small(), KvStorage::fp8)) == "");
  CHECK(refusal(decode_of(small(31))) == "one launch has 30 layers at most");
  Json large = with("hidden_size", 4096);
  large["intermediate_size"] = 14336;
  CHECK(refusal(decode_of(large)) == "layers so large gain little by one launch");
  Json window = with("use_sliding_window", true);
  window["sliding_window"] = 40, window["max_window_layers"] = 0;
  CHECK(refusal(decode_of(window)) == "no attention that is windowed or soft-capped");
  const Json codes =
      with("quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}});
  CHECK(refusal(decode_of(codes)) == "sizes must be multiples of a warp's columns");
}

TEST_CASE("a launch of layers points to each layer's weights and cache, and keeps its words") {
  const kernels::LayersPlan plan{.blocks = 132, .stages = 8};
  const Lowered all(decode_of(small()), plan);
  const Launch& launch = all.launch();
  CHECK(launch.at_once);
  CHECK(launch.grid[0] == Count(132));
  CHECK(launch.threads == plan.threads());
  CHECK(launch.maps.size() == 4 * kernels::maps_of_layer);
  REQUIRE(launch.stamps);
  CHECK(launch.stamps->at == offsetof(kernels::LayersParams, stamps));
  CHECK(launch.stamps->rounds == 4);
  CHECK(launch.stamps->points.size() == kernels::points_of_layer);
  CHECK(launch.stamps->points[5] == "attention: handed on");
  CHECK(all.params.stamps == nullptr);
  CHECK(all.params.layers == 4);
  CHECK(all.params.capacity == 512);
  CHECK(all.params.rope_pitch == 64);
  CHECK(all.params.head_norm_eps == 1e-6f);
  for (int i = 0; i < 4; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const auto key = [&](const kernels::TensorMap& field) {
      return all.buffer(all.map(field).buffer).key;
    };
    const kernels::LayerMaps& maps = all.params.maps[i];
    CHECK(key(maps.q) == layer + "self_attn.q_proj.weight");
    CHECK(key(maps.k) == layer + "self_attn.k_proj.weight");
    CHECK(key(maps.v) == layer + "self_attn.v_proj.weight");
    CHECK(key(maps.o) == layer + "self_attn.o_proj.weight");
    CHECK(key(maps.gate) == layer + "mlp.gate_proj.weight");
    CHECK(key(maps.up) == layer + "mlp.up_proj.weight");
    CHECK(key(maps.down) == layer + "mlp.down_proj.weight");
    CHECK(all.map(maps.gate).box_rows == plan.pair_box_rows);
    CHECK(all.map(maps.down).columns == 192);
    CHECK(all.map(maps.down).box_panels == plan.box_panels());
    const kernels::LayerPointers& pointers = all.params.layer[i];
    const auto of = [&](const void* const& field) {
      return all.buffer(all.pointer(&field).buffer);
    };
    CHECK(of(pointers.norm).key == layer + "input_layernorm.weight");
    CHECK(of(pointers.mlp_norm).key == layer + "post_attention_layernorm.weight");
    CHECK(of(pointers.q_norm).key == layer + "self_attn.q_norm.weight");
    CHECK(of(pointers.k_norm).key == layer + "self_attn.k_norm.weight");
    CHECK(all.buffer(all.pointer(&pointers.values).buffer).state == i);
    CHECK(all.buffer(all.pointer(&pointers.values).buffer).tensor == kValues);
  }
  const Launch::Pointer& words = all.pointer(&all.params.words);
  const Buffer& kept = all.buffer(words.buffer);
  CHECK(kept.role == Buffer::Role::kept);
  const kernels::LayersOp op{
      .hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 64, .inter = 192, .head_norms = true};
  CHECK(kept.bytes.at(1) == words.offset.at(1) + 8 * plan.words(op));
  CHECK(all.pointer(&all.params.done).buffer == words.buffer);
  CHECK(all.buffer(all.pointer(&all.params.rope).buffer).role == Buffer::Role::rope_table);
}

TEST_CASE("layers of codes point to their scales, and maps count pairs of bytes") {
  CHECK(refusal(decode_of(small_of_codes())) == "");
  CHECK(refusal(decode_of(small_of_codes(320))) == "sizes must be multiples of a warp's columns");
  const Lowered all(decode_of(small_of_codes()), {.blocks = 132, .stages = 8});
  const kernels::LayerMaps& maps = all.params.maps[2];
  const kernels::LayerPointers& pointers = all.params.layer[2];
  const auto key = [&](const void* const& field) {
    return all.buffer(all.pointer(&field).buffer).key;
  };
  CHECK(all.buffer(all.map(maps.up).buffer).key == "model.layers.2.mlp.up_proj.weight_packed");
  CHECK(all.map(maps.up).columns == 64);
  CHECK(all.map(maps.down).columns == 128);
  CHECK(key(pointers.scales.k) == "model.layers.2.self_attn.k_proj.weight_scale");
  CHECK(key(pointers.scales.down) == "model.layers.2.mlp.down_proj.weight_scale");
}

TEST_CASE("layers of bytes point to scales of rows, or of blocks") {
  const auto of = [](const char* quantization, int kv_heads) {
    Json json = small();
    json["hidden_size"] = 256, json["intermediate_size"] = 384;
    json["num_key_value_heads"] = kv_heads;
    json["quantization_config"] = Json::parse(quantization);
    return decode_of(json);
  };
  const char* const blocks = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
  const Lowered fp8(of(blocks, 2), {.blocks = 132, .stages = 8});
  CHECK(fp8.map(fp8.params.maps[1].up).columns == 128);
  const Launch::Pointer& scales = fp8.pointer(&fp8.params.layer[1].scales.down);
  CHECK(fp8.buffer(scales.buffer).key == "model.layers.1.mlp.down_proj.weight_scale_inv");
  CHECK(scales.offset == Count(0));
  const char* const rows =
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
          "config_groups": {"all": {"targets": ["Linear"], "weights":
            {"num_bits": 8, "type": "int", "strategy": "channel"}}}})";
  const Lowered int8(of(rows, 2), {.blocks = 132, .stages = 8});
  CHECK(int8.buffer(int8.pointer(&int8.params.layer[0].scales.v).buffer).key ==
        "model.layers.0.self_attn.v_proj.weight_scale");
}

TEST_CASE("layers of codes point to zero points, or to the scale of each matrix") {
  const auto of = [](const char* dtype, const char* quantization) {
    Json json = small_of_codes();
    json["torch_dtype"] = dtype, json["quantization_config"] = Json::parse(quantization);
    return decode_of(json);
  };
  const kernels::LayersPlan plan{.blocks = 132, .stages = 8};
  const Lowered awq(of("float16", R"({"quant_method": "awq", "bits": 4, "group_size": 64})"), plan);
  const auto key = [](const Lowered& all, const void* const& field) {
    return all.buffer(all.pointer(&field).buffer).key;
  };
  const kernels::LayerPointers& pointers = awq.params.layer[1];
  CHECK(key(awq, pointers.scales.k) == "model.layers.1.self_attn.k_proj.scales");
  CHECK(key(awq, pointers.beside.up) == "model.layers.1.mlp.up_proj.qzeros");
  const Lowered nvfp4(of("bfloat16",
                         R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
             "ignore": ["lm_head"], "config_groups": {"all": {"targets": ["Linear"], "weights":
               {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}})"),
                      plan);
  const kernels::LayerPointers& of_floats = nvfp4.params.layer[0];
  CHECK(key(nvfp4, of_floats.scales.o) == "model.layers.0.self_attn.o_proj.weight_scale");
  CHECK(key(nvfp4, of_floats.beside.down) == "model.layers.0.mlp.down_proj.weight_global_scale");
}

TEST_CASE("rows of fused products are found behind their views") {
  const Lowered all(fused_layers(), {.blocks = 132, .stages = 8});
  const kernels::LayerMaps& maps = all.params.maps[1];
  CHECK(all.map(maps.q).buffer == all.map(maps.v).buffer);
  CHECK(all.buffer(all.map(maps.q).buffer).key == "qkv1");
  constexpr std::int64_t kRow = 128 * 2;
  CHECK(all.map(maps.q).offset == Count(0));
  CHECK(all.map(maps.k).offset == Count(4 * 64 * kRow));
  CHECK(all.map(maps.v).offset == Count(6 * 64 * kRow));
  CHECK(all.map(maps.k).rows == Count(2 * 64));
  CHECK(all.map(maps.gate).offset == Count(0));
  CHECK(all.map(maps.up).offset == Count(192 * kRow));
  CHECK(all.buffer(all.map(maps.up).buffer).key == "gate_up1");
}

TEST_CASE("warps of layers are as many as leave few of them idle") {
  const auto warps_of_first = [](int hidden, int inter) {
    LayersTask task;
    task.op = {.hidden = hidden, .heads = 16, .kv_heads = 8, .head_dim = 128, .inter = inter};
    task.op.format = {
        .codes = kernels::Codes::u4, .scale = kernels::ScaleType::bf16, .columns = 128};
    task.layers = 28, task.tokens = 128;
    const DeviceInfo device = device_info("sm_90");
    const auto plans = task.plans();
    double least = std::numeric_limits<double>::infinity();
    int warps = 0;
    for (const kernels::LayersPlan& plan : plans) {
      if (task.why_illegal(plan, device) != nullptr) continue;
      const double cost = task.cost(plan, device).microseconds;
      if (cost < least) least = cost, warps = plan.warps;
    }
    return warps;
  };
  CHECK(warps_of_first(2048, 6144) == 8);
  CHECK(warps_of_first(2560, 9728) == 10);
}

TEST_CASE("layers are tried as two, by as many blocks as they are for") {
  const Regions decode = analyse(decode_of(small()));
  const Plans plans = plans_of(decode, "host", {"layers"});
  const Part& part = together(plans).parts[0];
  const Space space = plan_space(decode.step, *part.wanted, {.T = 1, .P = 128}, device_info("host"),
                                 10'000, {"layers"});
  const auto found = index_in(space, "layers/4x1.1.1/3");
  REQUIRE(found);
  const Candidate& candidate = space.candidates[*found];
  const TrialSetting at{
      1, {1, std::vector<std::int64_t>(decode.step.states.size(), 512)}, false, 512};
  const auto request = trial_of(decode.step, part.wanted, candidate, at);
  REQUIRE(request);
  const StepGraph tried = parse_step(request->trial.step, "trial");
  CHECK(tried.states.size() == 2);
  CHECK(request->trial.launches[0].grid[0] == Count(4));
  // Places of attention that are used again: beyond what all blocks take at once.
  CHECK(request->trial.positions.back() > 1.5 * extent_of(candidate.choice).round);
  const auto confirmation = confirmation_of(decode.step, part.wanted, candidate, at);
  REQUIRE(confirmation);
  CHECK(parse_step((*confirmation)[0].trial.step, "trial").states.size() == 2);
  CHECK((*confirmation)[0].left_open == "");
}

TEST_CASE(
    "layers of 4 bits keep a pace that is near their GPU's memory, and can be tried with it") {
  const Regions decode = analyse(decode_of(small_of_codes()));
  const Plans plans = plans_of(decode, "sm_90", {"layers"});
  const Wanted& wanted = *together(plans).parts[0].wanted;
  const TrialSetting at{
      132, {1, std::vector<std::int64_t>(decode.step.states.size(), 512)}, false, 512};
  int before = 0;
  // The slower memory is, the slower the pace.
  for (const double bandwidth : {4.4e12, 3.1e12}) {
    DeviceInfo device = device_info("sm_90");
    device.bandwidth = bandwidth;
    const Space space = plan_space(decode.step, wanted, {.T = 1, .P = 128}, device, 12, {"layers"});
    REQUIRE(space.candidates.size() == 12);
    const auto& first = std::get<Implementation<LayersTask>>(space.candidates[0].choice);
    CHECK(first.plan.pace > before);
    before = first.plan.pace;
    for (const Candidate& candidate : space.candidates)
      CHECK_MESSAGE(trial_of(decode.step, wanted, candidate, at), candidate.id);
  }
}
