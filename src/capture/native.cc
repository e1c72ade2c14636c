#include "capture/native.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "capture/stored_formats.h"
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
    if (c_.embedding_scale != 1) {
      // transformers keeps it in a tensor of the model's type.
      const double scale = round_by_float(c_.dtype, c_.embedding_scale);
      x = b_.binary(Op::mul, x, b_.scalar(c_.dtype, scale));
    }
    add_ropes();
    for (std::size_t i = 0; i < c_.layers.size(); ++i)
      x = layer(x, c_.layers[i], fmt::format("model.layers.{}", i));
    x = norm(x, "model.norm", c_.hidden_size);
    b_.set_module("lm_head");
    const NodeId head =
        c_.tied_embeddings ? tied_head(table) : matrix(c_.vocab_size, c_.hidden_size);
    NodeId logits = b_.linear(x, head);  // [S, vocab]
    if (c_.logit_cap > 0) {
      const NodeId cap = b_.scalar(c_.dtype, c_.logit_cap);
      logits = b_.binary(Op::mul, b_.unary(Op::tanh, b_.binary(Op::div, logits, cap)), cap);
    }
    graph_.outputs.push_back({"logits", logits});
  }

 private:
  // Keys of a checkpoint are module paths, so the current module gives them.
  NodeId weight(const char* name, Shape shape) {
    return b_.weight(b_.module() + "." + name, {c_.dtype, std::move(shape)});
  }

  NodeId matrix(std::int64_t rows, std::int64_t columns) {
    return matrix(b_.module(), rows, columns);
  }
  NodeId matrix(const std::string& module, std::int64_t rows, std::int64_t columns) {
    const StoredFormat stored = c_.quantization.stored_as(module);
    return b_.weight(module, {c_.dtype, {rows, columns}}, stored.format, stored.layout);
  }

  // An embedding reads plain tables. Where the file has codes of it, the head reads those.
  NodeId tied_head(NodeId table) {
    const std::string module = c_.embedding_key.substr(0, c_.embedding_key.rfind('.'));
    if (!c_.quantization.of_module.contains(module)) return table;
    return matrix(module, c_.vocab_size, c_.hidden_size);
  }

  NodeId linear(NodeId x, const std::string& module, std::int64_t in, std::int64_t out, bool bias) {
    b_.set_module(module);
    const NodeId w = matrix(out, in);
    return bias ? b_.linear(x, w, weight("bias", {out})) : b_.linear(x, w);
  }

  NodeId norm(NodeId x, const std::string& module, std::int64_t size) {
    b_.set_module(module);
    return b_.rms_norm(x, weight("weight", {size}), c_.rms_norm_eps, c_.norm_offset);
  }

  void add_ropes() {
    b_.set_module("model");
    positions_ = b_.positions(kTokens);
    b_.set_module("model.rotary_emb");
    const std::int64_t head_dim = c_.layers[0].attention.head_dim;
    for (const RopeConfig& config : c_.ropes) {
      const RopeFrequencies rope = rope_frequencies(config, head_dim);
      const NodeId inverse =
          b_.constant(DType::f32, {head_dim / 2}, {rope.inverse.begin(), rope.inverse.end()});
      ropes_.push_back({inverse, rope.scale});
    }
  }

  NodeId layer(NodeId x, const LayerConfig& layer, const std::string& module) {
    const auto normed = [&](NodeId value, const char* name) {
      return name ? norm(value, module + "." + name, c_.hidden_size) : value;
    };
    const auto add = [&](NodeId value) {
      b_.set_module(module);
      x = b_.binary(Op::add, x, value);
    };
    const LayerNorms& norms = layer.norms;
    const NodeId attended =
        attention(normed(x, norms.before_attention), layer.attention, module + ".self_attn");
    add(normed(attended, norms.after_attention));
    const NodeId fed = mlp(normed(x, norms.before_mlp), layer.mlp, module + ".mlp");
    add(normed(fed, norms.after_mlp));
    return x;
  }

  NodeId attention(NodeId x, const AttentionConfig& a, const std::string& module) {
    // A projection split into heads: [S, heads, head_dim]
    const auto heads = [&](const char* name, std::int64_t count) {
      const NodeId flat = linear(x, module + name, c_.hidden_size, count * a.head_dim, a.qkv_bias);
      b_.set_module(module);
      return b_.reshape(flat, {kTokens, count, a.head_dim});
    };
    const auto rotate = [&](NodeId value) {
      if (a.rope == kNoRope) return value;
      const Rope& rope = ropes_[static_cast<std::size_t>(a.rope)];
      return b_.rope(value, positions_, rope.inverse, rope.scale, false);
    };
    NodeId q = heads(".q_proj", a.heads);
    if (a.qk_norm) q = norm(q, module + ".q_norm", a.head_dim);
    NodeId k = heads(".k_proj", a.kv_heads);
    if (a.qk_norm) k = norm(k, module + ".k_norm", a.head_dim);
    const NodeId v = heads(".v_proj", a.kv_heads);
    q = rotate(q);
    k = rotate(k);
    const NodeId y = b_.attention(q, k, v, a.scale, a.window, 0.0);
    const std::int64_t features = a.heads * a.head_dim;
    return linear(b_.reshape(y, {kTokens, features}), module + ".o_proj", features, c_.hidden_size,
                  a.o_bias);
  }

  NodeId activate(NodeId x, Activation activation) {
    switch (activation) {
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

  NodeId mlp(NodeId x, const MlpConfig& m, const std::string& module) {
    NodeId gate = linear(x, module + ".gate_proj", c_.hidden_size, m.size, m.bias);
    b_.set_module(module + ".act_fn");
    gate = activate(gate, m.activation);
    const NodeId up = linear(x, module + ".up_proj", c_.hidden_size, m.size, m.bias);
    b_.set_module(module);
    return linear(b_.binary(Op::mul, gate, up), module + ".down_proj", m.size, c_.hidden_size,
                  m.bias);
  }

  struct Rope {
    NodeId inverse;  // frequencies
    double scale;    // of cosines and sines
  };

  const DecoderConfig& c_;
  Graph& graph_;
  Builder b_;
  NodeId positions_ = 0;
  std::vector<Rope> ropes_;
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
  if (!config.says_dtype) config.dtype = stored_dtype(directory, config.dtype);
  settle_tied_head(directory, config);
  settle_format(directory, config.dtype, config.quantization);
  Model model;
  model.graph = build_decoder(config, name_of(directory));
  model.stores = {{"checkpoint", directory}};
  check_formats(directory, config.quantization, model.graph);
  warn_of_unread(directory, model.graph);
  model.architecture = config.architecture;
  return model;
}

}  // namespace ac
