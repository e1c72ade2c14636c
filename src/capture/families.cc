#include "capture/families.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace ac {
namespace {

// Gives the window to the layers that `layer_types` names, or, without it, to those for which
// slides(index) holds.
template <class Slides>
void set_windows(const ConfigFields& config, DecoderConfig& decoder, std::int64_t window,
                 const Slides& slides) {
  const std::int64_t count = std::ssize(decoder.layers);
  const bool typed = config.has_value("layer_types");
  if (typed && (!config["layer_types"].is_array() || std::ssize(config["layer_types"]) != count))
    config.wrong("layer_types", fmt::format("a list of num_hidden_layers, {}", count));
  for (std::int64_t i = 0; i < count; ++i) {
    bool sliding = slides(i);
    if (typed) {
      const std::string field = fmt::format("layer_types[{}]", i);
      const Json& type = config["layer_types"][static_cast<std::size_t>(i)];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention")
        config.fail(field,
                    fmt::format("is {}, expected \"full_attention\" or \"sliding_attention\"",
                                brief(type)));
      if (sliding && window == 0)
        config.fail(field, "is \"sliding_attention\", but no sliding window is in use");
    }
    decoder.layers[static_cast<std::size_t>(i)].attention.window = sliding ? window : 0;
  }
}

// For architectures that have no layer_types of their own: what it says must hold anyway.
void set_window(const ConfigFields& config, DecoderConfig& decoder, std::int64_t window) {
  set_windows(config, decoder, window, [](std::int64_t) { return true; });
  for (std::size_t i = 0; i < decoder.layers.size(); ++i)
    if (decoder.layers[i].attention.window != window)
      config.fail(fmt::format("layer_types[{}]", i),
                  fmt::format("is \"full_attention\", but the layers of {} all slide",
                              decoder.architecture));
}

// 0: none.
std::int64_t window_of(const ConfigFields& config, std::int64_t unsaid) {
  if (config.is_null("sliding_window")) return 0;
  return unsaid > 0 || config.has("sliding_window")
             ? config.integer("sliding_window", 1, kMaxSize, unsaid)
             : 0;
}

void llama(const ConfigFields& config, DecoderConfig& decoder) {
  if (config.has_value("pretraining_tp") && config.integer("pretraining_tp", 0, kMaxSize) > 1)
    config.fail("pretraining_tp",
                fmt::format("is {}, but projections split in slices are not supported: set it to 1",
                            config["pretraining_tp"].get<std::int64_t>()));
  // transformers would mask nothing, and yet drop what the window leaves behind from its cache.
  if (const std::int64_t window = window_of(config, 0))
    config.fail("sliding_window",
                fmt::format("is {}, but {} has no sliding window", window, decoder.architecture));
  set_window(config, decoder, 0);
}

void mistral(const ConfigFields& config, DecoderConfig& decoder) {
  set_window(config, decoder, window_of(config, 4096));
}

void qwen(const ConfigFields& config, DecoderConfig& decoder) {
  std::int64_t window = window_of(config, 4096);
  if (!config.boolean("use_sliding_window", false)) window = 0;
  const std::int64_t first = config.integer("max_window_layers", 0, kMaxSize, 28);
  set_windows(config, decoder, window, [&](std::int64_t layer) { return layer >= first; });
}

// Some layers have no positions at all; those are the ones that may slide.
void smollm3(const ConfigFields& config, DecoderConfig& decoder) {
  const std::int64_t interval = config.integer("no_rope_layer_interval", 1, kMaxSize, 4);
  const bool listed = config.has_value("no_rope_layers");
  if (listed && (!config["no_rope_layers"].is_array() ||
                 config["no_rope_layers"].size() < decoder.layers.size()))
    config.wrong("no_rope_layers",
                 fmt::format("a list of num_hidden_layers, {}", decoder.layers.size()));
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    bool rotates = (static_cast<std::int64_t>(i) + 1) % interval != 0;
    if (listed) {
      const Json& flag = config["no_rope_layers"][i];
      if (flag != 0 && flag != 1)
        config.fail(fmt::format("no_rope_layers[{}]", i),
                    fmt::format("is {}, expected 1 (the layer rotates) or 0", brief(flag)));
      rotates = flag == 1;
    }
    if (!rotates) decoder.layers[i].attention.rope = kNoRope;
  }
  const bool slides = config.boolean("use_sliding_window", false);
  set_windows(config, decoder, slides ? window_of(config, 0) : 0, [&](std::int64_t layer) {
    return decoder.layers[static_cast<std::size_t>(layer)].attention.rope == kNoRope;
  });
}

void gemma3(const ConfigFields& config, DecoderConfig& decoder) {
  if (config.has_value("use_bidirectional_attention") &&
      config.boolean("use_bidirectional_attention", false))
    config.fail("use_bidirectional_attention", "is true, but only causal decoders are supported");
  const std::int64_t heads = decoder.layers[0].attention.heads;
  if (decoder.hidden_size % heads != 0)
    config.fail("hidden_size", fmt::format("is {}, expected a multiple of num_attention_heads, {}",
                                           decoder.hidden_size, heads));
  decoder.embedding_scale = std::sqrt(static_cast<double>(decoder.hidden_size));
  if (config.has_value("final_logit_softcapping"))
    decoder.logit_cap = config.number("final_logit_softcapping", 1e-6, 1e6);
  const std::int64_t pattern = config.integer("sliding_window_pattern", 1, kMaxSize, 6);
  set_windows(config, decoder, config.integer("sliding_window", 1, kMaxSize, 4096),
              [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  const std::int64_t query = config.integer("query_pre_attn_scalar", 1, kMaxSize, 256);
  for (LayerConfig& layer : decoder.layers) {
    layer.attention.scale = std::pow(static_cast<double>(query), -0.5);
    layer.attention.rope = layer.attention.window > 0 ? 1 : 0;
  }
}

constexpr std::array<Family, 6> kFamilies{{
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .max_positions = 2048,
     .qkv_bias = Bias::stated,
     .o_bias = Bias::stated,
     .mlp_bias = Bias::stated,
     .schedule = llama},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .kv_heads = 8,
     .max_positions = 131072,
     .schedule = mistral},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .kv_heads = 32,
     .max_positions = 32768,
     .qkv_bias = Bias::always,
     .schedule = qwen},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .qkv_bias = Bias::stated,
     .o_bias = Bias::stated,
     .qk_norm = true,
     .schedule = qwen},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .kv_heads = 4,
     .max_positions = 32768,
     .rope_theta = 2000000,
     .tied_embeddings = true,
     .qkv_bias = Bias::stated,
     .o_bias = Bias::stated,
     .mlp_bias = Bias::stated,
     .schedule = smollm3},
    {.architecture = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .kv_heads = 4,
     .head_dim = 256,
     .max_positions = 131072,
     .rope_theta = 1000000,
     .local_rope_theta = 10000,
     .tied_embeddings = true,
     .activation_field = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .qkv_bias = Bias::stated,
     .o_bias = Bias::stated,
     .qk_norm = true,
     .norms = {.before_attention = "input_layernorm",
               .after_attention = "post_attention_layernorm",
               .before_mlp = "pre_feedforward_layernorm",
               .after_mlp = "post_feedforward_layernorm"},
     .norm_offset = 1,
     .schedule = gemma3},
}};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace ac
