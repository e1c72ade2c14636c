#include "capture/config.h"

#include <array>
#include <map>

#include "base/error.h"
#include "capture/config_fields.h"
#include "capture/rope_config.h"

namespace ac {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr std::int64_t kMaxLayers = 10000;
constexpr std::int64_t kMaxHeadDim = 1 << 16;
constexpr std::int64_t kMaxWeight = std::int64_t{1} << 40;  // elements; any total fits 64 bits
constexpr std::size_t kMaxFile = 16u << 20;

enum class Bias { never, always, stated };
enum class Windows { none, every_layer, by_layer };

// How the configs of one architecture are to be read, and what they leave unsaid.
struct Family {
  const char* architecture;
  const char* model_type;
  std::int64_t kv_heads;  // 0: as many as heads
  std::int64_t head_dim;  // 0: hidden_size / heads
  std::int64_t max_positions;
  Bias qkv_bias, o_bias, mlp_bias;
  bool qk_norm;
  Windows windows;
};

constexpr std::array<Family, 4> kFamilies{{
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .kv_heads = 0,
     .head_dim = 0,
     .max_positions = 2048,
     .qkv_bias = Bias::stated,
     .o_bias = Bias::stated,
     .mlp_bias = Bias::stated,
     .qk_norm = false,
     .windows = Windows::none},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .kv_heads = 8,
     .head_dim = 0,
     .max_positions = 131072,
     .qkv_bias = Bias::never,
     .o_bias = Bias::never,
     .mlp_bias = Bias::never,
     .qk_norm = false,
     .windows = Windows::every_layer},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .kv_heads = 32,
     .head_dim = 0,
     .max_positions = 32768,
     .qkv_bias = Bias::always,
     .o_bias = Bias::never,
     .mlp_bias = Bias::never,
     .qk_norm = false,
     .windows = Windows::by_layer},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .qkv_bias = Bias::stated,
     .o_bias = Bias::stated,
     .mlp_bias = Bias::never,
     .qk_norm = true,
     .windows = Windows::by_layer},
}};

[[noreturn]] void unknown_architecture(const std::string& origin, const std::string& what) {
  std::string known;
  for (const Family& family : kFamilies)
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  bad_input(
      "{}: {}; without Python only these are known: {}. For any other decoder use the Python "
      "capture: python -m agentcompile.capture DIR -o FILE",
      origin, what, known);
}

// By `architectures`, or by `model_type` where a config was saved without its model.
const Family& find_family(const ConfigFields& config) {
  const bool has_type = config.has_value("model_type");
  const std::string type = has_type ? config.text("model_type") : "";
  if (!config.has_value("architectures")) {
    if (!has_type) unknown_architecture(config.origin(), "it names no architecture");
    for (const Family& family : kFamilies)
      if (family.model_type == type) return family;
    unknown_architecture(config.origin(), "unknown model_type " + brief(config["model_type"]));
  }
  const Json& list = config["architectures"];
  if (!list.is_array() || list.size() != 1 || !list[0].is_string())
    config.wrong("architectures", "a list of one name");
  for (const Family& family : kFamilies) {
    if (list[0] != family.architecture) continue;
    // transformers goes by the model_type, so that the two must agree.
    if (has_type && type != family.model_type)
      config.wrong("model_type",
                   fmt::format("\"{}\" with {}", family.model_type, family.architecture));
    return family;
  }
  unknown_architecture(config.origin(), "unknown architecture " + brief(list[0]));
}

// Fields that change what is computed or how weights are stored, in ways that we do not follow.
void refuse_unsupported(const ConfigFields& config) {
  if (config.has_value("quantization_config"))
    config.fail("quantization_config",
                "is set, but quantized weights are not supported: use the checkpoint in float32, "
                "float16 or bfloat16");
  if (config.has_value("pretraining_tp") && config.integer("pretraining_tp", 0, kMaxSize) > 1)
    config.fail("pretraining_tp",
                fmt::format("is {}, but projections split in slices are not supported: set it to 1",
                            config["pretraining_tp"].get<std::int64_t>()));
  if (config.has_value("per_layer_config"))
    config.fail("per_layer_config", "is set, but layers that differ in size are not supported");
  if (config.has_value("is_causal") && !config.boolean("is_causal", true))
    config.fail("is_causal", "is false, but only causal decoders are supported");
}

DType read_dtype(const ConfigFields& config) {
  const char* field = config.has_value("dtype") ? "dtype" : "torch_dtype";
  if (!config.has_value(field)) return DType::f32;
  const auto dtype = dtype_from_torch_name(config.text(field));
  if (!dtype || !is_float(*dtype)) config.wrong(field, "float32, float16 or bfloat16");
  return *dtype;
}

Activation read_activation(const ConfigFields& config) {
  static const std::map<std::string, Activation> known{{"silu", Activation::silu},
                                                       {"gelu", Activation::gelu},
                                                       {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                       {"gelu_new", Activation::gelu_tanh},
                                                       {"relu", Activation::relu}};
  const auto found = known.find(config.text("hidden_act", "silu"));
  if (found == known.end())
    config.wrong("hidden_act", "silu, gelu, gelu_pytorch_tanh, gelu_new or relu");
  return found->second;
}

void read_heads(const ConfigFields& config, const Family& family, DecoderConfig& result) {
  result.heads = config.integer("num_attention_heads", 1, kMaxSize);
  if (config.is_null("num_key_value_heads"))
    result.kv_heads = result.heads;
  else
    result.kv_heads = config.integer("num_key_value_heads", 1, kMaxSize,
                                     family.kv_heads ? family.kv_heads : result.heads);
  if (result.heads % result.kv_heads != 0)
    config.fail("num_attention_heads",
                fmt::format("is {}, expected a multiple of num_key_value_heads, {}", result.heads,
                            result.kv_heads));

  if (config.has_value("head_dim") || (family.head_dim && config.has("head_dim"))) {
    result.head_dim = config.integer("head_dim", 1, kMaxHeadDim);
  } else if (family.head_dim) {
    result.head_dim = family.head_dim;
  } else {
    if (result.hidden_size % result.heads != 0)
      config.fail("hidden_size", fmt::format("is {}, expected a multiple of num_attention_heads, "
                                             "{}, where head_dim is not given",
                                             result.hidden_size, result.heads));
    result.head_dim = result.hidden_size / result.heads;
  }
  if (result.head_dim > kMaxHeadDim)
    config.fail("hidden_size", fmt::format("makes heads of {} features, more than {}",
                                           result.head_dim, kMaxHeadDim));
  if (result.head_dim % 2 != 0)
    config.fail("head_dim", fmt::format("is {}, expected an even number: rotary embeddings turn "
                                        "pairs of features",
                                        result.head_dim));
}

void check_weights(const ConfigFields& config, const DecoderConfig& c) {
  const auto check = [&](const char* names, std::int64_t rows, std::int64_t columns) {
    if (rows > kMaxWeight / columns)
      bad_input("{}: {} make a weight of [{}, {}], more than 2^40 elements", config.origin(), names,
                rows, columns);
  };
  if (c.heads > kMaxSize / c.head_dim)
    bad_input("{}: num_attention_heads and head_dim make {} * {} features, more than 2^31",
              config.origin(), c.heads, c.head_dim);
  check("vocab_size and hidden_size", c.vocab_size, c.hidden_size);
  check("intermediate_size and hidden_size", c.intermediate_size, c.hidden_size);
  check("num_attention_heads, head_dim and hidden_size", c.heads * c.head_dim, c.hidden_size);
}

// The window of the layers that slide; 0 when none does.
std::int64_t read_window(const ConfigFields& config, const Family& family) {
  const std::int64_t window =
      config.is_null("sliding_window") ? 0 : config.integer("sliding_window", 1, kMaxSize, 4096);
  switch (family.windows) {
    case Windows::none:
      // transformers would mask nothing, and yet drop what the window leaves behind from its cache.
      if (config.has_value("sliding_window"))
        config.fail("sliding_window", fmt::format("is {}, but {} has no sliding window", window,
                                                  family.architecture));
      return 0;
    case Windows::every_layer:
      return window;
    case Windows::by_layer:
      return config.boolean("use_sliding_window", false) ? window : 0;
  }
  AC_UNREACHABLE();
}

std::vector<std::int64_t> read_windows(const ConfigFields& config, const Family& family,
                                       std::int64_t layers) {
  const std::int64_t window = read_window(config, family);
  const bool by_layer = family.windows == Windows::by_layer;
  const std::int64_t first = by_layer ? config.integer("max_window_layers", 0, kMaxSize, 28) : 0;
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < layers; ++i) windows.push_back(i >= first ? window : 0);
  if (!config.has_value("layer_types")) return windows;

  const Json& types = config["layer_types"];
  if (!types.is_array() || types.size() != windows.size())
    config.wrong("layer_types", fmt::format("a list of num_hidden_layers, {}", layers));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const std::string field = fmt::format("layer_types[{}]", i);
    const bool sliding = types[i] == "sliding_attention";
    if (!sliding && types[i] != "full_attention")
      config.fail(field, fmt::format("is {}, expected \"full_attention\" or \"sliding_attention\"",
                                     brief(types[i])));
    if (sliding && window == 0)
      config.fail(field, "is \"sliding_attention\", but no sliding window is in use");
    if (!by_layer && sliding != (window != 0))
      config.fail(field, fmt::format("is {}, but the layers of {} are all alike: here they all {}",
                                     brief(types[i]), family.architecture,
                                     window ? "slide" : "see every token"));
    windows[i] = sliding ? window : 0;
  }
  return windows;
}

}  // namespace

DecoderConfig parse_config(const Json& json, const std::string& origin) {
  const ConfigFields config(json, origin);
  const Family& family = find_family(config);
  refuse_unsupported(config);

  DecoderConfig result;
  result.architecture = family.architecture;
  result.dtype = read_dtype(config);
  result.vocab_size = config.integer("vocab_size", 1, kMaxSize);
  result.hidden_size = config.integer("hidden_size", 1, kMaxSize);
  result.intermediate_size = config.integer("intermediate_size", 1, kMaxSize);
  result.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  read_heads(config, family, result);
  check_weights(config, result);
  result.max_positions =
      config.integer("max_position_embeddings", 1, kMaxSize, family.max_positions);
  result.activation = read_activation(config);
  result.rms_norm_eps = config.number("rms_norm_eps", 0, 1, 1e-6);
  result.tied_embeddings = config.boolean("tie_word_embeddings", false);

  const auto has_bias = [&](Bias bias, const char* field) {
    return bias == Bias::always || (bias == Bias::stated && config.boolean(field, false));
  };
  result.qkv_bias = has_bias(family.qkv_bias, "attention_bias");
  result.o_bias = has_bias(family.o_bias, "attention_bias");
  result.mlp_bias = has_bias(family.mlp_bias, "mlp_bias");
  result.qk_norm = family.qk_norm;
  result.windows = read_windows(config, family, result.layers);
  result.rope = read_rope_config(config, result.head_dim, result.max_positions);
  return result;
}

bool is_native_architecture(std::string_view architecture) {
  return std::any_of(kFamilies.begin(), kFamilies.end(),
                     [&](const Family& family) { return family.architecture == architecture; });
}

DecoderConfig read_config(const std::filesystem::path& config_json) {
  return parse_config(read_json(config_json, {.bytes = kMaxFile}), config_json.string());
}

}  // namespace ac
