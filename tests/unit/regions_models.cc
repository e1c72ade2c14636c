#include "regions_models.h"

#include <algorithm>
#include <random>

#include "capture/native.h"
#include "ir/incrementalise.h"
#include "ir/normalise.h"
#include "tests/tools/source_folder.h"

namespace ac::test {
namespace {

StepGraph instance(const DecoderConfig& config, const std::string& name, bool decode) {
  const StepGraph step = incrementalise(normalise(build_decoder(config, name)));
  return decode ? decode_instance(step) : prefill_instance(step);
}

}  // namespace

StepGraph published(const std::string& config, bool decode) {
  const std::filesystem::path data = test_data();
  return instance(read_config(data / "configs" / (config + ".json")), config, decode);
}

StepGraph one_layer_qwen3() {
  const Json config{{"architectures", {"Qwen3ForCausalLM"}},
                    {"model_type", "qwen3"},
                    {"hidden_size", 32},
                    {"intermediate_size", 48},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"head_dim", 16},
                    {"vocab_size", 40},
                    {"rope_theta", 1000000},
                    {"torch_dtype", "bfloat16"}};
  return instance(parse_config(config, "config.json"), "qwen3", true);
}

StepGraph gemma_like(std::int64_t layers, Dim tokens) {
  constexpr std::int64_t kHidden = 32, kHeads = 4, kKv = 2, kKey = 8, kInner = 64, kVocab = 50;
  StepGraph step;
  step.graph.name = "gemma";
  Builder b(step.graph);
  const auto weight = [&](const std::string& key, Shape shape) {
    return b.weight(key, {DType::bf16, std::move(shape)});
  };
  const auto norm = [&](NodeId x, const std::string& key) {
    return b.rms_norm(x, weight(key, {b.type(x).shape.back()}), 1e-6, 1.0);
  };
  b.set_module("model");
  const NodeId ids = b.input("ids", {DType::i64, {tokens}});
  const NodeId table = weight("embed", {kVocab, kHidden});
  const NodeId positions = b.positions(tokens);
  const NodeId frequencies = b.constant(DType::f32, {kKey / 2}, {1.0, 0.5, 0.25, 0.125});
  NodeId x = b.binary(Op::mul, b.embedding(table, ids), b.scalar(DType::bf16, 5.65625));
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    b.set_module(layer + ".self_attn");
    const NodeId normed = norm(x, layer + ".input_norm");
    const auto project = [&](const char* which, std::int64_t heads) {
      return b.reshape(b.linear(normed, weight(layer + which, {heads * kKey, kHidden})),
                       {tokens, heads, kKey});
    };
    const auto rotate = [&](NodeId value, const std::string& key) {
      return b.rope(norm(value, layer + key), positions, frequencies, 1.0, false);
    };
    const NodeId q = rotate(project(".q", kHeads), ".q_norm");
    const NodeId k = rotate(project(".k", kKv), ".k_norm");
    const std::int64_t window = i % 2 == 0 ? 16 : 0;
    step.states.push_back(kv_state(DType::bf16, kKv, kKey, kKey, window, b.module()));
    const NodeId y = b.append_attend(q, k, project(".v", kKv), i, 0.25, window, 50.0);
    const NodeId o = b.linear(b.reshape(y, {tokens, kHeads * kKey}),
                              weight(layer + ".o", {kHidden, kHeads * kKey}));
    x = b.binary(Op::add, x, norm(o, layer + ".post_norm"));
    b.set_module(layer + ".mlp");
    const NodeId inner = norm(x, layer + ".pre_mlp_norm");
    const NodeId gate = b.linear(inner, weight(layer + ".gate", {kInner, kHidden}));
    const NodeId up = b.linear(inner, weight(layer + ".up", {kInner, kHidden}));
    const NodeId down = b.linear(b.binary(Op::mul, b.gelu(gate, true), up),
                                 weight(layer + ".down", {kHidden, kInner}));
    x = b.binary(Op::add, x, norm(down, layer + ".post_mlp_norm"));
  }
  b.set_module("head");
  const NodeId cap = b.scalar(DType::bf16, 30.0);
  const NodeId logits = b.linear(norm(x, "norm"), table);
  step.graph.outputs.push_back(
      {"logits", b.binary(Op::mul, b.unary(Op::tanh, b.binary(Op::div, logits, cap)), cap)});
  return step;
}

StepGraph gpt2_like(std::int64_t layers, Dim tokens) {
  constexpr std::int64_t kHidden = 32, kHeads = 4, kKey = 8, kVocab = 50, kPositions = 64;
  StepGraph step;
  step.graph.name = "gpt2";
  Builder b(step.graph);
  const auto weight = [&](const std::string& key, Shape shape) {
    return b.weight(key, {DType::f16, std::move(shape)});
  };
  const auto norm = [&](NodeId x, const std::string& key) {
    return b.layer_norm({x, weight(key + ".weight", {kHidden}), weight(key + ".bias", {kHidden})},
                        1e-5);
  };
  const auto linear = [&](NodeId x, const std::string& key, std::int64_t out) {
    const Dim in = b.type(x).shape.back();
    return b.linear(x, weight(key + ".weight", {out, in}), weight(key + ".bias", {out}));
  };
  const NodeId ids = b.input("ids", {DType::i64, {tokens}});
  const NodeId table = weight("wte", {kVocab, kHidden});
  NodeId x = b.binary(Op::add, b.embedding(table, ids),
                      b.embedding(weight("wpe", {kPositions, kHidden}), b.positions(tokens)));
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string layer = "h." + std::to_string(i);
    b.set_module(layer + ".attn");
    const NodeId qkv = linear(norm(x, layer + ".ln_1"), layer + ".c_attn", 3 * kHidden);
    const auto part = [&](std::int64_t which) {
      return b.reshape(b.slice(qkv, 1, which * kHidden, (which + 1) * kHidden),
                       {tokens, kHeads, kKey});
    };
    step.states.push_back(kv_state(DType::f16, kHeads, kKey, kKey, 0, b.module()));
    const NodeId q = part(0), k = part(1), v = part(2);
    const NodeId y = b.append_attend(q, k, v, i, 0.35, 0, 0.0);
    x = b.binary(Op::add, linear(b.reshape(y, {tokens, kHidden}), layer + ".c_proj", kHidden), x);
    b.set_module(layer + ".mlp");
    const NodeId inner = b.gelu(linear(norm(x, layer + ".ln_2"), layer + ".fc", 4 * kHidden), true);
    x = b.binary(Op::add, linear(inner, layer + ".proj", kHidden), x);
  }
  b.set_module("");
  step.graph.outputs.push_back({"logits", b.linear(norm(x, "ln_f"), table)});
  return step;
}

StepGraph shuffled(const StepGraph& step, unsigned seed) {
  std::mt19937 random(seed);
  const std::vector<Node>& nodes = step.graph.nodes;
  std::vector<NodeId> place(nodes.size(), -1);
  StepGraph result{{step.graph.name, {}, {}}, step.states};
  while (result.graph.nodes.size() < nodes.size()) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (place[i] < 0 &&
          std::all_of(
              nodes[i].inputs.begin(), nodes[i].inputs.end(),
              [&](NodeId input) { return place[static_cast<std::size_t>(input)] >= 0; }))
        ready.push_back(i);
    const std::size_t next = ready[random() % ready.size()];
    Node node = nodes[next];
    for (NodeId& input : node.inputs) input = place[static_cast<std::size_t>(input)];
    place[next] = static_cast<NodeId>(result.graph.nodes.size());
    result.graph.nodes.push_back(std::move(node));
  }
  for (const Output& output : step.graph.outputs)
    result.graph.outputs.push_back({output.name, place[static_cast<std::size_t>(output.node)]});
  return result;
}

}  // namespace ac::test
