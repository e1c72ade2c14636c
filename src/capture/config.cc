#include "capture/config.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "capture/config_fields.h"
#include "capture/families.h"
#include "capture/rope_config.h"

namespace ac {
namespace {

constexpr std::int64_t kMaxLayers = 10000;
constexpr std::int64_t kMaxHeadDim = 1 << 16;
constexpr std::int64_t kMaxWeight = std::int64_t{1} << 40;  // elements; any total fits 64 bits

[[noreturn]] void unknown_architecture(const std::string& origin, const std::string& what) {
  std::string known;
  for (const Family& family : families())
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
    for (const Family& family : families())
      if (family.model_type == type) return family;
    unknown_architecture(config.origin(), "unknown model_type " + brief(config["model_type"]));
  }
  const Json& list = config["architectures"];
  if (!list.is_array() || list.size() != 1 || !list[0].is_string())
    config.wrong("architectures", "a list of one name");
  for (const Family& family : families()) {
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
  if (config.has_value("per_layer_config"))
    config.fail("per_layer_config", "is set, but layers that differ in size are not supported");
  // transformers takes a null for false.
  if (config.is_null("is_causal") || !config.boolean("is_causal", true))
    config.fail("is_causal", fmt::format("is {}, but only causal decoders are supported",
                                         brief(config["is_causal"])));
}

DType read_dtype(const ConfigFields& config) {
  const char* field = config.has_value("dtype") ? "dtype" : "torch_dtype";
  if (!config.has_value(field)) return DType::f32;
  const auto dtype = dtype_from_torch_name(config.text(field));
  if (!dtype || !is_float(*dtype)) config.wrong(field, "float32, float16 or bfloat16");
  return *dtype;
}

Activation read_activation(const ConfigFields& config, const Family& family) {
  static const std::map<std::string, Activation> known{{"silu", Activation::silu},
                                                       {"gelu", Activation::gelu},
                                                       {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                       {"gelu_new", Activation::gelu_tanh},
                                                       {"relu", Activation::relu}};
  const auto found = known.find(config.text(family.activation_field, family.activation));
  if (found == known.end())
    config.wrong(family.activation_field, "silu, gelu, gelu_pytorch_tanh, gelu_new or relu");
  return found->second;
}

void read_heads(const ConfigFields& config, const Family& family, std::int64_t hidden_size,
                AttentionConfig& result) {
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
    if (hidden_size % result.heads != 0)
      config.fail("hidden_size", fmt::format("is {}, expected a multiple of num_attention_heads, "
                                             "{}, where head_dim is not given",
                                             hidden_size, result.heads));
    result.head_dim = hidden_size / result.heads;
  }
  if (result.head_dim > kMaxHeadDim)
    config.fail("hidden_size", fmt::format("makes heads of {} features, more than {}",
                                           result.head_dim, kMaxHeadDim));
  if (result.head_dim % 2 != 0)
    config.fail("head_dim", fmt::format("is {}, expected an even number: rotary embeddings turn "
                                        "pairs of features",
                                        result.head_dim));
}

void check_weights(const ConfigFields& config, const DecoderConfig& c, const LayerConfig& layer) {
  const auto check = [&](const char* names, std::int64_t rows, std::int64_t columns) {
    if (rows > kMaxWeight / columns)
      bad_input("{}: {} make a weight of [{}, {}], more than 2^40 elements", config.origin(), names,
                rows, columns);
  };
  const AttentionConfig& a = layer.attention;
  if (a.heads > kMaxSize / a.head_dim)
    bad_input("{}: num_attention_heads and head_dim make {} * {} features, more than 2^31",
              config.origin(), a.heads, a.head_dim);
  check("vocab_size and hidden_size", c.vocab_size, c.hidden_size);
  check("intermediate_size and hidden_size", layer.mlp.size, c.hidden_size);
  check("num_attention_heads, head_dim and hidden_size", a.heads * a.head_dim, c.hidden_size);
}

// What all layers have in common.
LayerConfig read_layer(const ConfigFields& config, const Family& family, std::int64_t hidden_size) {
  const auto has_bias = [&](Bias bias, const char* field) {
    return bias == Bias::always || (bias == Bias::stated && config.boolean(field, false));
  };
  LayerConfig layer;
  layer.mlp.size = config.integer("intermediate_size", 1, kMaxSize);
  read_heads(config, family, hidden_size, layer.attention);
  layer.attention.qkv_bias = has_bias(family.qkv_bias, "attention_bias");
  layer.attention.o_bias = has_bias(family.o_bias, "attention_bias");
  layer.attention.qk_norm = family.qk_norm;
  layer.attention.scale = std::pow(static_cast<double>(layer.attention.head_dim), -0.5);
  layer.mlp.activation = read_activation(config, family);
  layer.mlp.bias = has_bias(family.mlp_bias, "mlp_bias");
  layer.norms = family.norms;
  return layer;
}

}  // namespace

DecoderConfig parse_config(const Json& json, const std::string& origin) {
  const ConfigFields config(json, origin);
  const Family& family = find_family(config);
  refuse_unsupported(config);

  DecoderConfig result;
  result.architecture = family.architecture;
  result.dtype = read_dtype(config);
  result.says_dtype = config.has_value("dtype") || config.has_value("torch_dtype");
  result.vocab_size = config.integer("vocab_size", 1, kMaxSize);
  result.hidden_size = config.integer("hidden_size", 1, kMaxSize);
  result.max_positions =
      config.integer("max_position_embeddings", 1, kMaxSize, family.max_positions);
  result.rms_norm_eps = config.number("rms_norm_eps", 0, 1, 1e-6);
  result.norm_offset = family.norm_offset;
  result.tied_embeddings = config.boolean("tie_word_embeddings", family.tied_embeddings);

  const LayerConfig layer = read_layer(config, family, result.hidden_size);
  check_weights(config, result, layer);
  result.layers.assign(static_cast<std::size_t>(config.integer("num_hidden_layers", 1, kMaxLayers)),
                       layer);
  const RopeScope scope{layer.attention.head_dim, result.max_positions};
  if (family.local_rope_theta > 0)
    result.ropes = read_ropes_by_layer(config, family.rope_theta, family.local_rope_theta, scope);
  else
    result.ropes = {read_rope(config, family.rope_theta, scope)};
  family.schedule(config, result);
  result.quantization = read_quantization(config);
  return result;
}

bool is_native_architecture(std::string_view architecture) {
  return std::ranges::any_of(
      families(), [&](const Family& family) { return family.architecture == architecture; });
}

DecoderConfig read_config(const std::filesystem::path& config_json) {
  const Json json = read_config_json(config_json);
  DecoderConfig config = parse_config(json, config_json.string());
  if (const auto field = json.find("quantization_config"); field == json.end() || field->is_null())
    config.quantization = read_hf_quant_config(config_json.parent_path());
  return config;
}

}  // namespace ac
