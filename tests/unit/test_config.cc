#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "capture/config.h"

using namespace ac;

namespace {

// A valid config with members replaced; kAbsent removes one.
const char* const kAbsent = "absent";

struct Change {
  const char* field;
  const char* json;  // text, so that it may be what JSON cannot hold as a value
};

std::string config_text(const std::string& architecture, const std::vector<Change>& changes) {
  Json config{{"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"vocab_size", 100},
              {"max_position_embeddings", 128}};
  for (const Change& change : changes) config.erase(change.field);
  std::string text = config.dump();
  text.pop_back();
  bool named = false;
  for (const Change& change : changes) {
    named |= std::string(change.field) == "architectures";
    if (change.json != kAbsent) text += fmt::format(", \"{}\": {}", change.field, change.json);
  }
  if (!named) text += fmt::format(", \"architectures\": [\"{}ForCausalLM\"]", architecture);
  return text + "}";
}

DecoderConfig parse(const std::string& architecture, const std::vector<Change>& changes) {
  return parse_config(parse_json(config_text(architecture, changes), "config.json"), "config.json");
}

LayerConfig layer(const std::string& architecture, const std::vector<Change>& changes) {
  return parse(architecture, changes).layers.at(0);
}

std::string error_of(const std::string& architecture, const std::vector<Change>& changes) {
  try {
    parse(architecture, changes);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::bad_input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("configs mean what they mean to transformers") {
  const std::vector<Change> none;
  SUBCASE("defaults") {
    const DecoderConfig llama = parse("Llama", none);
    CHECK(llama.architecture == "LlamaForCausalLM");
    CHECK(llama.dtype == DType::f32);
    CHECK(llama.rms_norm_eps == 1e-6);
    CHECK_FALSE(llama.tied_embeddings);
    REQUIRE(llama.ropes.size() == 1);
    CHECK(llama.ropes[0].type == RopeType::plain);
    CHECK(llama.ropes[0].theta == 10000);
    REQUIRE(llama.layers.size() == 2);
    for (const LayerConfig& layer : llama.layers) {
      CHECK(layer.attention.head_dim == 16);
      CHECK(layer.attention.window == 0);
      CHECK_FALSE(layer.attention.qkv_bias);
      CHECK_FALSE(layer.attention.qk_norm);
      CHECK(layer.mlp.activation == Activation::silu);
    }

    const std::vector<Change> sparse{{"num_key_value_heads", kAbsent},
                                     {"max_position_embeddings", kAbsent},
                                     {"num_attention_heads", "64"}};
    CHECK(layer("Llama", {{"num_key_value_heads", kAbsent}}).attention.kv_heads == 4);
    CHECK(parse("Llama", {{"max_position_embeddings", kAbsent}}).max_positions == 2048);
    CHECK(layer("Mistral", {sparse[0], sparse[1], {"head_dim", "8"}, {"num_attention_heads", "16"}})
              .attention.kv_heads == 8);
    CHECK(parse("Mistral", {sparse[1]}).max_positions == 131072);
    CHECK(layer("Qwen3", sparse).attention.kv_heads == 32);
    CHECK(layer("Qwen3", sparse).attention.head_dim == 128);
    CHECK(layer("Qwen2", {{"num_key_value_heads", "null"}}).attention.kv_heads == 4);
    CHECK(parse("Qwen2", {sparse[1]}).max_positions == 32768);
  }
  SUBCASE("head_dim") {
    CHECK(layer("Llama", {{"head_dim", "null"}}).attention.head_dim == 16);
    CHECK(layer("Llama", {{"head_dim", "6"}}).attention.head_dim == 6);
    CHECK(layer("Qwen2", {{"head_dim", "6"}}).attention.head_dim == 6);
    CHECK(layer("Mistral", {{"head_dim", "6"}, {"hidden_size", "65"}}).attention.head_dim == 6);
  }
  SUBCASE("dtype") {
    CHECK(parse("Llama", {{"torch_dtype", "\"bfloat16\""}}).dtype == DType::bf16);
    CHECK(parse("Llama", {{"dtype", "\"float16\""}, {"torch_dtype", "\"float32\""}}).dtype ==
          DType::f16);
    CHECK(parse("Llama", {{"dtype", "null"}, {"torch_dtype", "\"float16\""}}).dtype == DType::f16);
  }
  SUBCASE("activation") {
    CHECK(layer("Qwen2", {{"hidden_act", "\"gelu\""}}).mlp.activation == Activation::gelu);
    CHECK(layer("Qwen2", {{"hidden_act", "\"gelu_new\""}}).mlp.activation == Activation::gelu_tanh);
    CHECK(layer("Qwen2", {{"hidden_act", "\"relu\""}}).mlp.activation == Activation::relu);
  }
  SUBCASE("an unsaid architecture follows from the model type") {
    CHECK(parse("", {{"architectures", "null"}, {"model_type", "\"qwen3\""}}).architecture ==
          "Qwen3ForCausalLM");
  }
  SUBCASE("ropes and windows of Gemma 3 as it was published") {
    const std::vector<Change> published{{"num_hidden_layers", "7"},
                                        {"rope_theta", "2000000"},
                                        {"rope_scaling", "{\"type\": \"linear\", \"factor\": 8}"},
                                        {"sliding_window", "32"}};
    const DecoderConfig gemma = parse("Gemma3", published);
    REQUIRE(gemma.ropes.size() == 2);
    CHECK(gemma.ropes[0].theta == 2000000);
    CHECK(gemma.ropes[0].factor == 8);
    CHECK(gemma.ropes[1].theta == 10000);
    CHECK(gemma.ropes[1].type == RopeType::plain);
    for (std::size_t i = 0; i < 7; ++i) {
      CHECK(gemma.layers[i].attention.window == (i == 5 ? 0 : 32));
      CHECK(gemma.layers[i].attention.rope == (i == 5 ? 0 : 1));
    }
    CHECK(gemma.tied_embeddings);
  }
  SUBCASE("harmless members") {
    CHECK(parse("SmolLM3", {{"pretraining_tp", "2"}}).ropes[0].theta == 2000000);
    CHECK(parse("Llama", {{"pretraining_tp", "1"},
                          {"quantization_config", "null"},
                          {"layer_types", "[\"full_attention\", \"full_attention\"]"},
                          {"sliding_window", "null"},
                          {"anything", "{\"a\": [1]}"}})
              .layers.size() == 2);
    // Not rotated in part by transformers either.
    CHECK(parse("Llama", {{"partial_rotary_factor", "0.5"}}).ropes[0].type == RopeType::plain);
  }
}

TEST_CASE("a bad config is an error that names the file, the field and what was expected") {
  struct Case {
    const char* architecture;
    std::vector<Change> changes;
    const char* message;
  };
  const char* const size_range = "expected an integer from 1 to 2147483648";
  const auto scaling = [](const char* text) { return Change{"rope_scaling", text}; };
  std::vector<Case> cases{
      // What it is.
      {"Llama",
       {{"architectures", "[\"GPT2LMHeadModel\"]"}},
       "unknown architecture \"GPT2LMHeadModel\""},
      {"Llama",
       {{"architectures", "[\"GPT2LMHeadModel\"]"}},
       "python -m agentcompile.capture DIR -o FILE"},
      {"Llama", {{"architectures", kAbsent}}, "it names no architecture"},
      {"Llama",
       {{"architectures", "[]"}},
       "architectures is a list of 0, expected a list of one name"},
      {"Llama", {{"architectures", "[3]"}}, "expected a list of one name"},
      {"Llama", {{"architectures", "\"LlamaForCausalLM\""}}, "expected a list of one name"},
      {"Llama",
       {{"architectures", "null"}, {"model_type", "\"phi3\""}},
       "unknown model_type \"phi3\""},
      {"Llama", {{"model_type", "\"mixtral\""}}, "model_type is \"mixtral\", expected \"llama\""},
      {"Llama", {{"model_type", "7"}}, "model_type is 7, expected a string"},
      {"Llama", {{"quantization_config", "{\"bits\": 4}"}}, "quantization_config.quant_method"},
      {"Llama", {{"pretraining_tp", "2"}}, "pretraining_tp is 2"},
      {"Qwen3", {{"per_layer_config", "{\"0\": {}}"}}, "per_layer_config is set"},
      {"Llama", {{"is_causal", "false"}}, "is_causal is false"},
      {"Llama", {{"is_causal", "null"}}, "is_causal is null"},
      // Heads.
      {"Llama", {{"num_key_value_heads", "3"}}, "expected a multiple of num_key_value_heads, 3"},
      {"Llama", {{"num_key_value_heads", "8"}}, "num_attention_heads is 4, expected a multiple"},
      {"Llama", {{"num_key_value_heads", "0"}}, size_range},
      {"Llama",
       {{"num_attention_heads", "6"}},
       "hidden_size is 64, expected a multiple of num_attention_heads, 6"},
      {"Llama", {{"head_dim", "0"}}, "head_dim is 0, expected an integer from 1 to 65536"},
      {"Llama", {{"head_dim", "-2"}}, "head_dim is -2"},
      {"Llama", {{"head_dim", "7"}}, "head_dim is 7, expected an even number"},
      {"Llama", {{"head_dim", "65538"}}, "head_dim is 65538"},
      {"Llama",
       {{"hidden_size", "2147483648"}, {"num_attention_heads", "2"}},
       "makes heads of 1073741824 features"},
      {"Qwen3", {{"head_dim", "null"}}, "head_dim is null, expected an integer"},
      {"Llama",
       {{"num_attention_heads", "2147483648"}, {"head_dim", "65536"}},
       "make 2147483648 * 65536 features"},
      {"Llama",
       {{"vocab_size", "2147483647"}, {"hidden_size", "2147483644"}, {"head_dim", "2"}},
       "more than 2^40 elements"},
      {"Llama",
       {{"intermediate_size", "2147483647"}, {"hidden_size", "4096"}},
       "intermediate_size and hidden_size make a weight of"},
      // Numbers.
      {"Llama",
       {{"rms_norm_eps", "-1e-6"}},
       "rms_norm_eps is -1e-06, expected a number from 0 to 1"},
      {"Llama", {{"rms_norm_eps", "\"nan\""}}, "rms_norm_eps is \"nan\", expected a number"},
      {"Llama", {{"rms_norm_eps", "null"}}, "rms_norm_eps is null"},
      {"Llama", {{"rms_norm_eps", "{\"__float__\": \"NaN\"}"}}, "rms_norm_eps is an object"},
      {"Llama", {{"rms_norm_eps", "NaN"}}, "not valid JSON"},
      {"Llama", {{"rms_norm_eps", "1e999"}}, "not valid JSON"},
      {"Llama", {{"rms_norm_eps", "Infinity"}}, "not valid JSON"},
      {"Llama",
       {{"num_hidden_layers", "10001"}},
       "num_hidden_layers is 10001, expected an integer from 1 to 10000"},
      {"Llama", {{"max_position_embeddings", "0"}}, "max_position_embeddings is 0"},
      // Kinds.
      {"Llama", {{"tie_word_embeddings", "1"}}, "tie_word_embeddings is 1, expected true or false"},
      {"Llama",
       {{"attention_bias", "\"yes\""}},
       "attention_bias is \"yes\", expected true or false"},
      {"Llama", {{"mlp_bias", "null"}}, "mlp_bias is null, expected true or false"},
      {"Llama", {{"hidden_act", "\"swiglu\""}}, "hidden_act is \"swiglu\", expected silu, gelu"},
      {"Llama", {{"hidden_act", "3"}}, "hidden_act is 3, expected a string"},
      {"Llama", {{"torch_dtype", "\"float64\""}}, "torch_dtype is \"float64\", expected float32"},
      {"Llama", {{"dtype", "\"int64\""}}, "dtype is \"int64\", expected float32"},
      {"Llama", {{"dtype", "[1]"}}, "dtype is a list of 1, expected a string"},
      // Windows.
      {"Llama", {{"sliding_window", "8"}}, "LlamaForCausalLM has no sliding window"},
      {"Mistral", {{"sliding_window", "0"}}, "sliding_window is 0"},
      {"Mistral", {{"sliding_window", "-1"}}, "sliding_window is -1"},
      {"Mistral",
       {{"layer_types", "[\"full_attention\", \"sliding_attention\"]"}},
       "layer_types[0] is \"full_attention\""},
      {"Qwen2", {{"use_sliding_window", "1"}}, "use_sliding_window is 1"},
      {"Qwen2", {{"max_window_layers", "-1"}}, "max_window_layers is -1"},
      {"Qwen3",
       {{"layer_types", "[\"full_attention\"]"}},
       "layer_types is a list of 1, expected a list of num_hidden_layers, 2"},
      {"Qwen3", {{"layer_types", "{}"}}, "layer_types is an object"},
      {"Qwen3", {{"layer_types", "[\"full_attention\", 3]"}}, "layer_types[1] is 3"},
      {"Qwen3",
       {{"layer_types", "[\"linear_attention\", \"full_attention\"]"}},
       "layer_types[0] is \"linear_attention\""},
      {"Qwen3",
       {{"layer_types", "[\"full_attention\", \"sliding_attention\"]"}},
       "layer_types[1] is \"sliding_attention\", but no sliding window"},
      {"SmolLM3", {{"no_rope_layers", "[1]"}}, "no_rope_layers is a list of 1, expected a list of"},
      {"SmolLM3", {{"no_rope_layers", "{}"}}, "no_rope_layers is an object"},
      {"SmolLM3", {{"no_rope_layers", "[1, 2]"}}, "no_rope_layers[1] is 2, expected 1"},
      {"SmolLM3", {{"no_rope_layer_interval", "0"}}, "no_rope_layer_interval is 0"},
      {"Gemma3", {{"sliding_window", "null"}}, "sliding_window is null"},
      {"Gemma3", {{"sliding_window_pattern", "0"}}, "sliding_window_pattern is 0"},
      {"Gemma3", {{"use_bidirectional_attention", "true"}}, "only causal decoders"},
      // What only Gemma 3 has.
      {"Gemma3", {{"hidden_size", "66"}}, "hidden_size is 66, expected a multiple"},
      {"Gemma3", {{"hidden_activation", "\"tanh\""}}, "hidden_activation is \"tanh\", expected"},
      {"Gemma3", {{"query_pre_attn_scalar", "0"}}, "query_pre_attn_scalar is 0"},
      {"Gemma3", {{"final_logit_softcapping", "0"}}, "final_logit_softcapping is 0"},
      {"Gemma3", {{"rope_local_base_freq", "0"}}, "rope_local_base_freq is 0"},
      {"Gemma3",
       {{"rope_parameters", "{\"rope_type\": \"default\"}"}},
       "rope_parameters.rope_type is \"default\", expected an object: each type of layer"},
      {"Gemma3",
       {{"rope_parameters", "{\"sliding_attention\": {\"rope_theta\": 0}}"}},
       "rope_parameters.sliding_attention.rope_theta is 0"},
      {"Gemma3",
       {{"rope_parameters", "{\"full_attention\": {\"rope_type\": \"dynamic\"}}"}},
       "rope_parameters.full_attention.rope_type is \"dynamic\", which is not supported"},
      {"Gemma3",
       {scaling("{\"type\": \"linear\", \"factor\": 2}"), {"rope_parameters", "{\"a\": {}}"}},
       "rope_scaling is set, and rope_parameters too"},
      // Rope.
      {"Llama", {{"rope_theta", "0"}}, "rope_theta is 0, expected a number from 1"},
      {"Llama", {{"rope_theta", "-10000.0"}}, "rope_theta is -10000.0"},
      {"Llama", {{"rope_theta", "1e300"}}, "rope_theta is 1e+300"},
      {"Llama", {{"rope_theta", "1e400"}}, "not valid JSON"},
      {"Llama", {{"rope_theta", "\"nan\""}}, "rope_theta is \"nan\""},
      {"Llama", {scaling("3")}, "rope_scaling is 3, expected an object or null"},
      {"Llama", {{"rope_parameters", "[]"}}, "rope_parameters is a list of 0"},
      {"Llama", {{"rope_parameters", "{\"rope_theta\": -1}"}}, "rope_parameters.rope_theta is -1"},
      {"Qwen3",
       {{"rope_parameters", "{\"full_attention\": {\"rope_theta\": 1e4}}"}},
       "rope_parameters.full_attention is an object"},
      {"Llama",
       {scaling("{\"type\": \"dynamic\", \"factor\": 2}")},
       "rope_scaling.type is \"dynamic\", which is not supported: its frequencies change"},
      {"Llama",
       {scaling("{\"rope_type\": \"longrope\"}")},
       "rope_scaling.rope_type is \"longrope\", which is not supported"},
      {"Llama",
       {scaling("{\"rope_type\": \"proportional\"}")},
       "the rope types are default, linear, llama3 and yarn"},
      {"Llama", {scaling("{\"rope_type\": 1}")}, "rope_scaling.rope_type is 1, expected a string"},
      {"Llama", {scaling("{\"type\": \"linear\"}")}, "rope_scaling.factor is missing"},
      {"Llama", {scaling("{\"type\": \"linear\", \"factor\": 0}")}, "rope_scaling.factor is 0"},
      {"Llama", {scaling("{\"type\": \"linear\", \"factor\": -2}")}, "rope_scaling.factor is -2"},
      {"Llama",
       {scaling("{\"type\": \"linear\", \"factor\": 2, \"partial_rotary_factor\": 0.5}")},
       "rotates whole heads"},
      {"Llama",
       {scaling("{\"type\": \"linear\", \"factor\": 2}"), {"partial_rotary_factor", "0.5"}},
       "partial_rotary_factor is 0.5"},
      {"Llama",
       {scaling("{\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 1}")},
       "high_freq_factor is missing"},
      {"Llama",
       {scaling("{\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 4, "
                "\"high_freq_factor\": 4}")},
       "high_freq_factor is 4, expected more than"},
      {"Llama",
       {scaling("{\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 0, "
                "\"high_freq_factor\": 4}")},
       "low_freq_factor is 0"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0}")},
       "original_max_position_embeddings is 0"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 1.5}")},
       "original_max_position_embeddings is 1.5"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 1, \"beta_slow\": 2}")},
       "beta_fast is 1, expected at least beta_slow, 2"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2, \"beta_slow\": 1e-300}")},
       "beta_slow is 1e-300"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": 0}")},
       "attention_factor is 0"},
      {"Llama", {scaling("{\"type\": \"yarn\", \"factor\": 2, \"mscale\": -1}")}, "mscale is -1"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2, \"truncate\": null}")},
       "truncate is null"},
      {"Llama",
       {scaling("{\"type\": \"yarn\", \"factor\": 2}"), {"rope_theta", "1"}},
       "must be more than 1 for yarn"},
  };
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "vocab_size"}) {
    cases.push_back({"Llama", {{field, kAbsent}}, "is missing, expected an integer"});
    for (const char* value : {"0", "-4", "2147483649", "18446744073709551615", "1e9", "64.0",
                              "\"64\"", "true", "null", "[64]", "{}"})
      cases.push_back({"Llama", {{field, value}}, ", expected an integer from 1 to "});
  }
  for (const Case& bad : cases) {
    const std::string message = error_of(bad.architecture, bad.changes);
    CAPTURE(std::string(bad.message));
    CAPTURE(message);
    CHECK(message.starts_with("config.json: "));
    CHECK(message.find(bad.message) != std::string::npos);
    CHECK(message.size() < 400);
    if (message.find("expected an integer") != std::string::npos)
      CHECK(message.find(std::string(bad.changes[0].field)) != std::string::npos);
  }
}

TEST_CASE("a long or unprintable value does not flood the message") {
  const std::string value = "\"" + std::string(100000, 'x') + "\\u0001\\u00e9\"";
  const std::string message = error_of("Llama", {{"hidden_act", value.c_str()}});
  CHECK(message.size() < 300);
  // Cut in the middle of a character of two bytes.
  const std::string wide = "\"" + std::string(79, 'x') + "\\u00e9\\u00e9\"";
  CHECK(error_of("Llama", {{"hidden_act", wide.c_str()}}).find("hidden_act") != std::string::npos);
}

TEST_CASE("a config that is not an object, or not there, is an error") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ac_test_config_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto path = folder / "config.json";
  for (const char* text : {"[]", "3", "\"x\"", "null", "", "{", "{}"}) {
    write_file_atomically(path, text);
    CAPTURE(std::string(text));
    CHECK_THROWS_AS(read_config(path), Error);
  }
  CHECK_THROWS_AS(read_config(folder / "absent.json"), Error);
  CHECK_THROWS_AS(read_config(folder), Error);
  std::filesystem::remove_all(folder);
}

TEST_CASE("config: patterns of modules' names are Python's, or refused") {
  struct Case {
    const char *pattern, *text;
    bool matches;
  };
  // What re.match says.
  constexpr Case cases[] = {{".*lm_head", "lm_head", true},
                            {".*lm_head", "model.lm_head.x", true},
                            {"lm_head", "model.lm_head", false},
                            {"lm_head", "lm_head2", true},
                            {"lm_head$", "lm_head2", false},
                            {"^model\\.layers\\.0\\..*", "model.layers.0.mlp", true},
                            {"model\\.layers", "modelxlayers", false},
                            {"model.layers", "modelxlayers", true},
                            {".*1.*down_proj$", "model.layers.11.mlp.down_proj", true},
                            {".*1.*down_proj$", "model.layers.2.mlp.down_proj", false},
                            {"a*b", "aaab", true},
                            {"a*b", "b", true},
                            {"a*$", "aab", false},
                            {"", "x", true},
                            {"$", "x", false}};
  for (const Case& one : cases) {
    INFO(one.pattern << " " << one.text);
    CHECK(is_simple_pattern(one.pattern));
    CHECK(matches(one.pattern, one.text) == one.matches);
  }
  for (const char* pattern :
       {"(a|b)", "a+", "[ab]", "a{2}", "\\d", "a\\", "*a", "a**", "a^b", "a$b", "a?", ".*.*.*.*x"})
    CHECK_FALSE_MESSAGE(is_simple_pattern(pattern), pattern);
}
