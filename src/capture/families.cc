#include "capture/families.h"

#include <array>

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

constexpr std::array<Family, 4> kFamilies{{
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
}};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace ac
