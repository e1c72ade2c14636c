// The config.json of a HuggingFace decoder, checked and reduced to what a forward needs. Defaults
// and the meaning of every field are those of transformers for the architecture in question; what
// transformers would reject or compute differently is an error (bad_input) that names the field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "capture/rope_frequencies.h"

namespace ac {

inline constexpr const char* kEmbeddingKey = "model.embed_tokens.weight";
inline constexpr const char* kHeadKey = "lm_head.weight";

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, relu };

struct DecoderConfig {
  std::string architecture;  // "LlamaForCausalLM"
  DType dtype = DType::f32;  // of weights and activations
  std::int64_t vocab_size, hidden_size, intermediate_size, layers;
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t max_positions;
  Activation activation;
  double rms_norm_eps;
  bool tied_embeddings;
  std::string embedding_key = kEmbeddingKey;  // in the checkpoint
  bool qkv_bias, o_bias, mlp_bias;
  bool qk_norm;                       // q and k are normalised a head before they are rotated
  std::vector<std::int64_t> windows;  // a layer's sliding window; 0: it sees all tokens
  RopeConfig rope;
};

bool is_native_architecture(std::string_view architecture);

DecoderConfig read_config(const std::filesystem::path& config_json);
// `origin` names the config in errors.
DecoderConfig parse_config(const Json& config, const std::string& origin);

}  // namespace ac
