#include "tests/device/family_models.h"

#include <fmt/format.h>

#include "base/error.h"
#include "capture/native.h"
#include "ir/builder.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"

namespace ac::test {
namespace {

// What differs between them is what kernels differ by: types, norms of queries and keys, windows,
// groups of heads and their sizes, biases, activations, formats of weights.
constexpr const char* kConfigs[] = {
    R"({"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 200,
        "intermediate_size": 1096, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1031})",
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "float16", "hidden_size": 264,
        "intermediate_size": 712, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 523, "tie_word_embeddings": true,
        "use_sliding_window": true, "sliding_window": 40, "max_window_layers": 1})",
    R"({"architectures": ["Qwen2ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256,
        "intermediate_size": 520, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 1, "vocab_size": 515, "tie_word_embeddings": true})",
    R"({"architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "hidden_size": 160,
        "intermediate_size": 328, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 301, "attention_bias": true, "mlp_bias": true, "hidden_act": "gelu"})",
    R"({"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 192,
        "intermediate_size": 392, "num_hidden_layers": 1, "num_attention_heads": 12,
        "num_key_value_heads": 4, "vocab_size": 307, "hidden_act": "gelu_pytorch_tanh"})",
    R"({"architectures": ["MistralForCausalLM"], "torch_dtype": "float32", "hidden_size": 130,
        "intermediate_size": 270, "num_hidden_layers": 1, "num_attention_heads": 5,
        "num_key_value_heads": 5, "vocab_size": 311, "sliding_window": 24})",
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 192,
        "intermediate_size": 320, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 309,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "float32", "hidden_size": 192,
        "intermediate_size": 344, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 317,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})",
    R"({"architectures": ["MistralForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 192,
        "intermediate_size": 352, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 313,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}})"};

// Layers whose sizes all layers in one launch take.
constexpr const char* kLayers =
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 192,
        "intermediate_size": 576, "num_hidden_layers": 3, "num_attention_heads": 10,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 305})";

constexpr const char* kLayersOfInt4 =
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256,
        "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 319,
        "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
          "ignore": ["lm_head"], "config_groups": {"all": {"targets": ["Linear"], "weights":
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}}}}})";

constexpr const char* kLayersOfInt8 =
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256,
        "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 33,
        "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
          "ignore": ["lm_head"], "config_groups": {"all": {"targets": ["Linear"], "weights":
            {"num_bits": 8, "type": "int", "strategy": "channel"}}}}})";

constexpr const char* kLayersOfFp8 =
    R"({"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256,
        "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 33,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

// With zero points, in float16.
constexpr const char* kLayersOfAwq =
    R"({"architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "hidden_size": 256,
        "intermediate_size": 2560, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 33,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}})";

// Heads of 128 dimensions, for a cache of codes.
constexpr const char* kLayersOfWideHeads =
    R"({"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256,
        "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 33})";

// Floats of 4 bits.
std::string layers_of_fp4(const char* format, const char* strategy, int group) {
  return fmt::format(
      R"({{"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 256,
          "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 33,
          "quantization_config": {{"quant_method": "compressed-tensors", "format": "{}",
            "ignore": ["lm_head"], "config_groups": {{"all": {{"targets": ["Linear"], "weights":
              {{"num_bits": 4, "type": "float", "strategy": "{}", "group_size": {}}}}}}}}}}})",
      format, strategy, group);
}

StepGraph layers_step(const std::string& json, KvStorage kv = KvStorage::elements) {
  const DecoderConfig config = parse_config(Json::parse(json), "config");
  return incrementalise(normalise(build_decoder(config, "layers")), kv);
}
StepGraph layers_decoder(const std::string& json, KvStorage kv = KvStorage::elements) {
  return decode_instance(layers_step(json, kv));
}

// What no config says: LayerNorm, one product for query, key and value, RoPE of neighbouring
// features and of a part of them, soft-caps.
StepGraph odd_decoder(const Dim& tokens) {
  constexpr std::int64_t kHidden = 136, kHeads = 4, kKv = 2, kKey = 64, kRotary = 16, kVocab = 77;
  constexpr std::int64_t kWindow = 40;
  constexpr DType kType = DType::f16;
  StepGraph step;
  step.graph.name = "odd";
  Builder b(step.graph);
  const auto weight = [&](const std::string& key, Shape shape) {
    return b.weight(key, {kType, std::move(shape)});
  };
  const auto layer_norm = [&](NodeId x, const std::string& key) {
    return b.layer_norm({x, weight(key + ".weight", {kHidden}), weight(key + ".bias", {kHidden})},
                        1e-5);
  };
  const NodeId ids = b.input("ids", {DType::i32, {tokens}});
  const NodeId table = weight("embed", {kVocab, kHidden});
  NodeId x = b.binary(Op::mul, b.embedding(table, ids), b.scalar(kType, 1.5));

  const NodeId normed = layer_norm(x, "norm1");
  const NodeId qkv = b.linear(normed, weight("qkv", {(kHeads + 2 * kKv) * kKey, kHidden}),
                              weight("qkv.bias", {(kHeads + 2 * kKv) * kKey}));
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    return b.reshape(b.slice(qkv, 1, first * kKey, (first + heads) * kKey), {tokens, heads, kKey});
  };
  const NodeId positions = b.positions(tokens);
  std::vector<double> frequencies;
  for (int i = 0; i < kRotary / 2; ++i) frequencies.push_back(1.0 / (1 << i));
  const NodeId inv_freq = b.constant(DType::f32, {kRotary / 2}, frequencies);
  const auto rotate = [&](NodeId value) { return b.rope(value, positions, inv_freq, 1.0, true); };
  const NodeId q = rotate(part(0, kHeads)), k = rotate(part(kHeads, kKv)),
               v = part(kHeads + kKv, kKv);
  step.states.push_back(kv_state(kType, kKv, kKey, kKey, kWindow, "layer"));
  const NodeId attended = b.append_attend(q, k, v, 0, 0.125, kWindow, 50.0);
  x = b.binary(Op::add, x,
               b.linear(b.reshape(attended, {tokens, kHeads * kKey}),
                        weight("o", {kHidden, kHeads * kKey})));

  const NodeId cap = b.scalar(kType, 30.0);
  const NodeId logits = b.linear(b.rms_norm(x, weight("norm3", {kHidden}), 1e-6, 1.0), table);
  step.graph.outputs = {
      {"logits", b.binary(Op::mul, b.unary(Op::tanh, b.binary(Op::div, logits, cap)), cap)}};
  return step;
}

// Families that have only rows, each with something to map or to broadcast.
StepGraph rows(DType dtype, const Dim& tokens) {
  constexpr std::int64_t kColumns = 328;
  StepGraph step;
  step.graph.name = "rows";
  Builder b(step.graph);
  const auto in = [&](const char* name, std::int64_t columns) {
    return b.input(name, {dtype, {tokens, columns}});
  };
  const auto out = [&](const char* name, NodeId node) {
    step.graph.outputs.push_back({name, node});
  };
  const auto weight = [&](const char* key) { return b.weight(key, {dtype, {kColumns}}); };
  out("softmax", b.softmax(b.binary(Op::mul, in("x1", kColumns), b.scalar(dtype, 0.25)), 1));
  out("mean", b.reduce(Op::mean, b.unary(Op::tanh, in("x2", kColumns)), {1}, true));
  out("amax", b.reduce(Op::amax, b.unary(Op::abs, in("x3", kColumns)), {1}, true));
  out("sum", b.reduce(Op::sum, in("x4", kColumns), {1}, true));
  const NodeId shifted = b.binary(Op::add, in("x5", kColumns), weight("shift"));
  const NodeId gate = b.binary(Op::mul, shifted, in("scale", 1));
  out("elementwise", b.binary(Op::add, b.unary(Op::silu, gate), in("x6", kColumns)));
  out("layer_norm", b.layer_norm({in("x7", kColumns), weight("norm"), weight("bias")}, 1e-5));
  return step;
}

// One node of an op, over inputs of its own.
NodeId add_op(StepGraph& step, const OpInfo& info, DType dtype) {
  Builder b(step.graph);
  const Dim tokens(Symbol::T);
  const auto name = [&](const char* kind) {
    return fmt::format("{}{}", kind, step.graph.nodes.size());
  };
  const auto in = [&] { return b.input(name("x"), {dtype, {tokens, 3, 6}}); };
  const auto flags = [&] { return b.input(name("flags"), {DType::boolean, {tokens, 3, 6}}); };
  const auto weight = [&](Shape shape) { return b.weight(name("w"), {dtype, std::move(shape)}); };
  switch (info.rule) {
    case ShapeRule::cast:
      return b.cast(in(), dtype == DType::f32 ? DType::bf16 : DType::f32);
    case ShapeRule::unary:
      return info.op == Op::gelu ? b.gelu(in(), true) : b.unary(info.op, in());
    case ShapeRule::binary:
      return b.binary(info.op, in(), weight({3, 1}));
    case ShapeRule::compare:  // of what is often equal
      return b.binary(info.op, flags(), flags());
    case ShapeRule::logical:
      return info.min_inputs == 1 ? b.unary(info.op, flags()) : b.binary(info.op, flags(), flags());
    case ShapeRule::where:
      return b.add(info.op, {flags(), in(), weight({6})});
    case ShapeRule::reduce:
      return b.reduce(info.op, in(), {1, 2}, false);
    case ShapeRule::softmax:
      return b.softmax(in(), 1);
    case ShapeRule::norm:
      return info.op == Op::rms_norm ? b.rms_norm(in(), weight({6}), 1e-5, 1)
                                     : b.layer_norm({in(), weight({6}), weight({6})}, 1e-5);
    case ShapeRule::matmul:
      return b.matmul(in(), weight({6, 5}));
    case ShapeRule::linear:
      return b.linear(in(), weight({9, 6}), weight({9}));
    case ShapeRule::embedding:
      return b.embedding(weight({20, 7}), b.input(name("ids"), {DType::i64, {tokens}}));
    case ShapeRule::rope:
      return b.rope(in(), b.positions(tokens), b.constant(DType::f32, {2}, {1, 0.25}), 1.5, true);
    case ShapeRule::attention:
      step.states.push_back(kv_state(dtype, 3, 6, 6, 0, ""));
      return b.append_attend(in(), in(), in(), 0, 0.5, 0, 9);
    case ShapeRule::concat:
      return b.concat({in(), weight({1, 3, 6})}, 0);
    case ShapeRule::triangle:
      return b.add(info.op, {in()}, {{"diagonal", std::int64_t{1}}});
    case ShapeRule::declared:
    case ShapeRule::positions:
    case ShapeRule::reshape:
    case ShapeRule::permute:
    case ShapeRule::expand:
    case ShapeRule::slice:
      break;
  }
  AC_UNREACHABLE();
}

}  // namespace

std::vector<FamilyModel> family_models(std::int64_t prompt) {
  std::vector<FamilyModel> models;
  const auto add = [&](const std::string& name, StepGraph decode, StepGraph prefill) {
    models.push_back({name + ", prefill", std::move(prefill), prompt});
    models.push_back({name + ", decode", std::move(decode), 1});
  };
  const Dim many(Symbol::T);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    add(fmt::format("rows {}", short_name(dtype)), rows(dtype, 1), rows(dtype, many));
  add("odd", odd_decoder(1), odd_decoder(many));
  models.push_back({"layers, decode", layers_decoder(kLayers), 1});
  models.push_back({"layers of int4, decode", layers_decoder(kLayersOfInt4), 1});
  models.push_back({"layers of awq, decode", layers_decoder(kLayersOfAwq), 1});
  models.push_back({"layers of mxfp4, decode",
                    layers_decoder(layers_of_fp4("mxfp4-pack-quantized", "group", 32)), 1});
  const std::string nvfp4 = layers_of_fp4("nvfp4-pack-quantized", "tensor_group", 16);
  models.push_back({"layers of nvfp4, prefill", prefill_instance(layers_step(nvfp4)), prompt});
  models.push_back({"layers of nvfp4, decode", layers_decoder(nvfp4), 1});
  models.push_back({"layers of int8, decode", layers_decoder(kLayersOfInt8), 1});
  models.push_back({"layers of fp8, decode", layers_decoder(kLayersOfFp8), 1});
  models.push_back(
      {"layers with an fp8 cache, decode", layers_decoder(kLayersOfWideHeads, KvStorage::fp8), 1});
  for (const char* text : kConfigs) {
    const DecoderConfig config = parse_config(Json::parse(text), "config");
    const std::string name = fmt::format("{} {}", config.architecture, short_name(config.dtype));
    const StepGraph step = incrementalise(normalise(build_decoder(config, name)));
    add(name, decode_instance(step), prefill_instance(step));
    if (text != kConfigs[0] && text != kConfigs[1]) continue;
    const StepGraph coded = incrementalise(normalise(build_decoder(config, name)), KvStorage::fp8);
    add(name + " fp8 cache", decode_instance(coded), prefill_instance(coded));
  }
  return models;
}

StepGraph step_of_all_ops() {
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
  StepGraph step;
  step.graph.name = "all ops";
  for (const OpInfo& info : op_table()) {
    const bool is_leaf = info.rule == ShapeRule::declared || info.rule == ShapeRule::positions;
    // In a step, append_attend stands for attention.
    if (is_leaf || info.memory == Memory::view || info.op == Op::attention) continue;
    const DType dtype = kTypes[step.graph.outputs.size() % 3];
    step.graph.outputs.push_back({std::string(info.name), add_op(step, info, dtype)});
  }
  return step;
}

}  // namespace ac::test
