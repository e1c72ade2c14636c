// The architectures that the native front end knows. Each is a line of a table: what its configs
// leave unsaid, and a function that says how its layers differ from each other.
#pragma once

#include <cstdint>
#include <span>

#include "capture/config.h"
#include "capture/config_fields.h"

namespace ac {

enum class Bias : std::uint8_t { never, always, stated };

struct Family {
  const char* architecture;
  const char* model_type;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / heads
  std::int64_t max_positions;
  double rope_theta = 10000;
  double local_rope_theta = 0;  // of layers with a window, where they have a rope of their own
  bool tied_embeddings = false;
  const char *activation_field = "hidden_act", *activation = "silu";
  Bias qkv_bias = Bias::never, o_bias = Bias::never, mlp_bias = Bias::never;
  bool qk_norm = false;
  LayerNorms norms{.before_attention = "input_layernorm",
                   .after_attention = nullptr,
                   .before_mlp = "post_attention_layernorm",
                   .after_mlp = nullptr};
  double norm_offset = 0;
  // The layers come alike, with one rope and without windows.
  void (*schedule)(const ConfigFields& config, DecoderConfig& decoder);
};

inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;  // of any axis

std::span<const Family> families();

}  // namespace ac
