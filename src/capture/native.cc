#include "capture/native.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "capture/tied_head.h"
#include "ir/builder.h"

namespace ac {
namespace {

const Dim kTokens(Symbol::S);

class DecoderBuilder {
 public:
  DecoderBuilder(const DecoderConfig& config, Graph& graph)
      : c_(config), graph_(graph), b_(graph) {}

  void build() {
    const NodeId ids = b_.input("ids", {DType::i64, {kTokens}});
    b_.set_module("model.embed_tokens");
    const NodeId table = b_.weight(c_.embedding_key, {c_.dtype, {c_.vocab_size, c_.hidden_size}});
    NodeId x = b_.embedding(table, ids);  // [S, hidden]
    add_rope_inputs();
    for (std::int64_t i = 0; i < c_.layers; ++i) x = layer(x, i);
    x = norm(x, "model.norm", c_.hidden_size);
    b_.set_module("lm_head");
    const NodeId head =
        c_.tied_embeddings ? table : weight("weight", {c_.vocab_size, c_.hidden_size});
    graph_.outputs.push_back({"logits", b_.linear(x, head)});  // [S, vocab]
  }

 private:
  // Keys of a checkpoint are module paths, so the current module gives them.
  NodeId weight(const char* name, Shape shape) {
    return b_.weight(b_.module() + "." + name, {c_.dtype, std::move(shape)});
  }

  NodeId linear(NodeId x, const std::string& module, std::int64_t in, std::int64_t out, bool bias) {
    b_.set_module(module);
    const NodeId matrix = weight("weight", {out, in});
    return bias ? b_.linear(x, matrix, weight("bias", {out})) : b_.linear(x, matrix);
  }

  NodeId norm(NodeId x, const std::string& module, std::int64_t size) {
    b_.set_module(module);
    return b_.rms_norm(x, weight("weight", {size}), c_.rms_norm_eps, 0.0);
  }

  void add_rope_inputs() {
    b_.set_module("model");
    positions_ = b_.positions(kTokens);
    b_.set_module("model.rotary_emb");
    const RopeFrequencies rope = rope_frequencies(c_.rope, c_.head_dim);
    frequencies_ =
        b_.constant(DType::f32, {c_.head_dim / 2}, {rope.inverse.begin(), rope.inverse.end()});
    rope_scale_ = rope.scale;
  }

  NodeId layer(NodeId x, std::int64_t index) {
    const std::string module = fmt::format("model.layers.{}", index);
    const NodeId attended =
        attention(norm(x, module + ".input_layernorm", c_.hidden_size), module + ".self_attn",
                  c_.windows[static_cast<std::size_t>(index)]);
    b_.set_module(module);
    x = b_.binary(Op::add, x, attended);
    const NodeId fed =
        mlp(norm(x, module + ".post_attention_layernorm", c_.hidden_size), module + ".mlp");
    b_.set_module(module);
    return b_.binary(Op::add, x, fed);
  }

  // A projection split into heads: [S, heads, head_dim]
  NodeId heads(NodeId x, const std::string& module, const char* name, std::int64_t count) {
    x = linear(x, module + "." + name, c_.hidden_size, count * c_.head_dim, c_.qkv_bias);
    b_.set_module(module);
    return b_.reshape(x, {kTokens, count, c_.head_dim});
  }

  NodeId rotate(NodeId x) { return b_.rope(x, positions_, frequencies_, rope_scale_, false); }

  NodeId attention(NodeId x, const std::string& module, std::int64_t window) {
    NodeId q = heads(x, module, "q_proj", c_.heads);
    if (c_.qk_norm) q = norm(q, module + ".q_norm", c_.head_dim);
    NodeId k = heads(x, module, "k_proj", c_.kv_heads);
    if (c_.qk_norm) k = norm(k, module + ".k_norm", c_.head_dim);
    const NodeId v = heads(x, module, "v_proj", c_.kv_heads);
    q = rotate(q);
    k = rotate(k);
    const double scale = std::pow(static_cast<double>(c_.head_dim), -0.5);
    x = b_.attention(q, k, v, scale, window, 0.0);
    const std::int64_t features = c_.heads * c_.head_dim;
    x = b_.reshape(x, {kTokens, features});
    return linear(x, module + ".o_proj", features, c_.hidden_size, c_.o_bias);
  }

  NodeId activate(NodeId x) {
    switch (c_.activation) {
      case Activation::silu:
        return b_.unary(Op::silu, x);
      case Activation::gelu:
        return b_.gelu(x, false);
      case Activation::gelu_tanh:
        return b_.gelu(x, true);
      case Activation::relu:
        return b_.unary(Op::relu, x);
    }
    AC_UNREACHABLE();
  }

  NodeId mlp(NodeId x, const std::string& module) {
    const std::int64_t hidden = c_.hidden_size, inner = c_.intermediate_size;
    NodeId gate = linear(x, module + ".gate_proj", hidden, inner, c_.mlp_bias);
    b_.set_module(module + ".act_fn");
    gate = activate(gate);
    const NodeId up = linear(x, module + ".up_proj", hidden, inner, c_.mlp_bias);
    b_.set_module(module);
    return linear(b_.binary(Op::mul, gate, up), module + ".down_proj", inner, hidden, c_.mlp_bias);
  }

  const DecoderConfig& c_;
  Graph& graph_;
  Builder b_;
  NodeId positions_ = 0, frequencies_ = 0;
  double rope_scale_ = 1;
};

std::string name_of(const std::filesystem::path& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "model/"
  return path.has_filename() ? path.filename().string() : "model";
}

}  // namespace

Graph build_decoder(const DecoderConfig& config, std::string name) {
  Graph graph;
  graph.name = std::move(name);
  DecoderBuilder(config, graph).build();
  return graph;
}

Model capture_native(const std::filesystem::path& directory) {
  DecoderConfig config = read_config(directory / "config.json");
  settle_tied_head(directory, config);
  Model model;
  model.graph = build_decoder(config, name_of(directory));
  model.stores = {{"checkpoint", directory}};
  model.architecture = config.architecture;
  return model;
}

}  // namespace ac
