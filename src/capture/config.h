// The config.json of a HuggingFace decoder, checked and reduced to what a forward needs: a schedule
// that says of each layer what it is made of. Defaults and the meaning of every field are those of
// transformers for the architecture in question; what transformers would reject or compute
// differently is an error (bad_input) that names the field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "capture/quantization.h"
#include "capture/rope_frequencies.h"

namespace ac {

inline constexpr const char* kEmbeddingKey = "model.embed_tokens.weight";
inline constexpr const char* kHeadKey = "lm_head.weight";

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, relu };

inline constexpr int kNoRope = -1;

struct AttentionConfig {
  std::int64_t heads, kv_heads, head_dim;
  bool qkv_bias, o_bias;
  bool qk_norm;             // q and k are normalised a head before they are rotated
  double scale;             // of the scores
  std::int64_t window = 0;  // 0: it sees all tokens
  int rope = 0;             // which of the decoder's; kNoRope: q and k stay as they are
};

// down(activation(gate(x)) * up(x))
struct MlpConfig {
  std::int64_t size;
  Activation activation;
  bool bias;
};

// The modules that are a layer's norms; null: there is none.
struct LayerNorms {
  const char *before_attention, *after_attention, *before_mlp, *after_mlp;
};

struct LayerConfig {
  AttentionConfig attention;
  MlpConfig mlp;
  LayerNorms norms;
};

struct DecoderConfig {
  std::string architecture;  // "LlamaForCausalLM"
  DType dtype = DType::f32;  // of weights and activations
  bool says_dtype = true;    // else a checkpoint does
  std::int64_t vocab_size, hidden_size;
  std::int64_t max_positions;
  double embedding_scale = 1;
  double logit_cap = 0;  // c > 0 turns a logit x into c * tanh(x / c)
  double rms_norm_eps;
  double norm_offset;  // norms multiply by norm_offset + weight
  bool tied_embeddings;
  std::string embedding_key = kEmbeddingKey;  // in the checkpoint
  Quantization quantization;
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;
};

bool is_native_architecture(std::string_view architecture);

DecoderConfig read_config(const std::filesystem::path& config_json);
// `origin` names the config in errors.
DecoderConfig parse_config(const Json& config, const std::string& origin);

}  // namespace ac
