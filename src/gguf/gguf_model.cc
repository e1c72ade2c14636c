#include "gguf/gguf_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/weight_layout.h"
#include "gguf/gguf_text.h"

namespace ac {
namespace {

// What the converter does to an architecture's tensors.
struct Architecture {
  std::string_view name, huggingface, model_type;
  bool reorders = false;  // the rows of queries and keys
  bool adds_one = false;  // to norms, which stand behind attention and MLP as well
};
constexpr Architecture kArchitectures[] = {
    {.name = "llama", .huggingface = "LlamaForCausalLM", .model_type = "llama", .reorders = true},
    {.name = "qwen2", .huggingface = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen3", .huggingface = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "smollm3",
     .huggingface = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .reorders = true},
    {.name = "gemma3",
     .huggingface = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .adds_one = true},
};

const Architecture& find_architecture(std::string_view name) {
  const auto* const found = std::ranges::find(kArchitectures, name, &Architecture::name);
  AC_ASSERT(found != std::end(kArchitectures));
  return *found;
}

using Kind = WeightPart::Kind;
constexpr Kind kPartsOfBlocks[] = {Kind::codes, Kind::scales, Kind::outer, Kind::high};

constexpr const char* kRopeDivisors = "rope_freqs.weight";

constexpr std::pair<std::string_view, std::string_view> kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr std::pair<std::string_view, std::string_view> kInLayers[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
constexpr std::pair<std::string_view, std::string_view> kWithMoreNorms[] = {
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"}};

std::string_view translate(std::span<const std::pair<std::string_view, std::string_view>> names,
                           std::string_view name) {
  const auto found =
      std::ranges::find(names, name, &std::pair<std::string_view, std::string_view>::first);
  return found == names.end() ? std::string_view() : found->second;
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; empty: unknown.
std::string huggingface_name(const Architecture& architecture, std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return {};
  const std::string_view kind = name.substr(dot);
  if (kind != ".weight" && kind != ".bias") return {};
  std::string_view module = name.substr(0, dot);
  if (!module.starts_with("blk.")) {
    const std::string_view translated = translate(kOutside, module);
    return translated.empty() ? std::string() : fmt::format("{}{}", translated, kind);
  }
  module.remove_prefix(4);
  std::uint32_t layer = 0;
  const auto [end, error] = std::from_chars(module.data(), module.data() + module.size(), layer);
  const std::string number = fmt::format("{}.", layer);
  if (error != std::errc() || !module.starts_with(number)) return {};
  module.remove_prefix(number.size());
  std::string_view translated;
  if (architecture.adds_one) translated = translate(kWithMoreNorms, module);
  if (translated.empty()) translated = translate(kInLayers, module);
  return translated.empty() ? std::string()
                            : fmt::format("model.layers.{}.{}{}", layer, translated, kind);
}

// Keys that every architecture may have, behind its name and a dot.
constexpr std::array kKnownKeys = std::to_array<std::string_view>(
    {"context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size",
     "attention.head_count", "attention.head_count_kv", "attention.key_length",
     "attention.value_length", "attention.layer_norm_rms_epsilon", "attention.sliding_window",
     "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
     "rope.scaling.original_context_length", "rope.scaling.finetuned"});
constexpr std::array kKeysOfYarn =
    std::to_array<std::string_view>({"rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"});
constexpr std::array kKeysOfGemma = std::to_array<std::string_view>(
    {"final_logit_softcapping", "attention.sliding_window_pattern", "rope.freq_base_swa"});
// Keys that must be zero: the model has nothing of the kind.
constexpr std::array kOnlyZero =
    std::to_array<std::string_view>({"expert_count", "expert_used_count", "nextn_predict_layers"});

}  // namespace

std::int64_t GgufWeight::rows() const {
  const std::vector<std::int64_t>& shape = tensor->shape;
  if (shape.size() == 1) return heads > 0 ? shape[0] : 1;
  return std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies<>());
}
std::size_t GgufWeight::row_elements() const {
  return tensor->shape.size() == 1 && heads > 0 ? 1
                                                : static_cast<std::size_t>(tensor->shape.back());
}
std::size_t GgufWeight::row_bytes() const {
  return row_elements() / tensor->type->elements * tensor->type->bytes;
}

GgufModel::GgufModel(GgufFile file) : file_(std::move(file)) {
  constexpr const char* kArchitecture = "general.architecture";
  const auto name = file_.text(kArchitecture);
  if (!name) file_.fail(kArchitecture, "is missing");
  if (std::ranges::find(kArchitectures, *name, &Architecture::name) == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture& one : kArchitectures)
      known += (known.empty() ? "" : ", ") + std::string(one.name);
    file_.fail(kArchitecture, fmt::format("is {}, and of GGUF files only these are supported: {}",
                                          quote(*name), known));
  }
  architecture_ = *name;
  constexpr const char* kSplit = "split.count";
  if (const auto files = file_.integer(kSplit); files.value_or(0) > 1)
    file_.fail(kSplit, fmt::format("is {}: this is one of several files; make one of them with "
                                   "llama.cpp's llama-gguf-split --merge",
                                   *files));
  check_keys();
  const Architecture& architecture = find_architecture(architecture_);
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.name == kRopeDivisors && architecture.reorders) continue;
    const std::string huggingface = huggingface_name(architecture, tensor.name);
    if (huggingface.empty())
      bad_input("{}: tensor {} is not known of the architecture {}", file_.name(),
                quote(tensor.name), architecture_);
    if (!tensor.type->read)
      bad_input(
          "{}: tensor {} is {}, which is not supported (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
          "Q8_0 and Q2_K to Q6_K are)",
          file_.name(), quote(tensor.name), tensor.type->name);
    GgufWeight weight{.tensor = &tensor,
                      .less_one = architecture.adds_one && tensor.name.ends_with("norm.weight")};
    if (architecture.reorders && tensor.name.starts_with("blk.")) {
      if (tensor.name.find(".attn_q.") != std::string::npos)
        weight.heads = count("attention.head_count");
      else if (tensor.name.find(".attn_k.") != std::string::npos)
        weight.heads = file_.has(key("attention.head_count_kv")) ? count("attention.head_count_kv")
                                                                 : count("attention.head_count");
      if (weight.heads > 0 && tensor.shape[0] % (2 * weight.heads) != 0)
        bad_input("{}: tensor {} has {} rows, which are no whole heads of {}", file_.name(),
                  quote(tensor.name), tensor.shape[0], weight.heads);
    }
    weights_.emplace(huggingface, weight);
  }
}

std::string GgufModel::key(std::string_view name) const {
  return fmt::format("{}.{}", architecture_, name);
}
std::int64_t GgufModel::count(std::string_view name) const {
  const auto value = file_.integer(key(name));
  if (!value) file_.fail(key(name), "is missing");
  if (*value < 1 || *value > INT32_MAX)
    file_.fail(key(name), fmt::format("is {}, and not from 1 to 2^31", *value));
  return *value;
}
double GgufModel::number(std::string_view name) const {
  const auto value = file_.number(key(name));
  if (!value) file_.fail(key(name), "is missing");
  return *value;
}

void GgufModel::check_keys() const {
  const std::string prefix = architecture_ + ".";
  const auto holds = [](const auto& list, std::string_view name) {
    return std::ranges::find(list, name) != list.end();
  };
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (holds(kOnlyZero, name)) {
      if (file_.integer(key) != 0)
        file_.fail(key, fmt::format("is {}, and models with experts or further predictions are not "
                                    "supported",
                                    *file_.integer(key)));
    } else if (!holds(kKnownKeys, name) && !holds(kKeysOfYarn, name) &&
               !(architecture_ == "gemma3" && holds(kKeysOfGemma, name))) {
      file_.fail(key, "is not known, and may change what the model computes");
    }
  }
}

std::vector<float> GgufModel::rope_divisors() const {
  const GgufTensor* const tensor = file_.find(kRopeDivisors);
  if (!tensor) return {};
  if (tensor->type->name != "F32" || tensor->shape.size() != 1)
    bad_input("{}: tensor {} is no list of F32", file_.name(), quote(kRopeDivisors));
  std::vector<float> divisors(static_cast<std::size_t>(tensor->shape[0]));
  std::memcpy(divisors.data(), file_.bytes(*tensor).data(), divisors.size() * sizeof(float));
  for (const float divisor : divisors)
    if (!(divisor > 0) || !std::isfinite(divisor))
      bad_input("{}: tensor {} has the element {}, and not a finite one above 0", file_.name(),
                quote(kRopeDivisors), divisor);
  return divisors;
}

const std::byte* GgufModel::row(const GgufWeight& weight, std::int64_t row) const {
  if (weight.heads > 0) {
    // HuggingFace has the first halves of all pairs, then the second; llama.cpp one pair after
    // another.
    const std::int64_t of_head = weight.rows() / weight.heads, half = of_head / 2;
    const std::int64_t place = row % of_head;
    row += place % half * 2 + place / half - place;
  }
  return file_.bytes(*weight.tensor).data() + static_cast<std::size_t>(row) * weight.row_bytes();
}

void GgufModel::read(const GgufWeight& weight, std::int64_t begin, std::int64_t end,
                     float* out) const {
  const BlockType& type = *weight.tensor->type;
  const std::size_t blocks = weight.row_elements() / type.elements;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::byte* block = row(weight, i);
    for (std::size_t at = 0; at < blocks; ++at, block += type.bytes, out += type.elements) {
      type.read(block, out);
      if (weight.less_one)
        for (std::size_t element = 0; element < type.elements; ++element) out[element] -= 1;
    }
  }
}

std::vector<std::int64_t> GgufPart::shape() const { return part.shape(weight->tensor->shape); }

std::optional<GgufPart> GgufModel::find_part(std::string_view name) const {
  const WeightLayout& layout = layout_traits(FileLayout::gguf);
  for (const Kind kind : kPartsOfBlocks) {
    const std::string_view suffix = layout.part(kind).suffix;
    if (!name.ends_with(suffix)) continue;
    const std::string module(name.substr(0, name.size() - suffix.size()));
    const auto weight = weights_.find(module + ".weight");
    if (weight == weights_.end() || weight->second.tensor->shape.size() != 2) return std::nullopt;
    const WeightFormat format = traits(weight->second.tensor->type->format);
    if (const auto index = format.index_of(kind))
      return GgufPart{&weight->second, format.parts[*index]};
  }
  return std::nullopt;
}

void GgufModel::read(const GgufPart& part, std::int64_t begin, std::int64_t end,
                     std::byte* out) const {
  const BlockType& type = *part.weight->tensor->type;
  const std::size_t blocks = part.weight->row_elements() / type.elements;
  const std::size_t bytes = type.part_bytes(part.part.kind);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::byte* block = row(*part.weight, i);
    for (std::size_t at = 0; at < blocks; ++at, block += type.bytes, out += bytes) {
      BlockParts to;
      (part.part.kind == Kind::codes    ? to.codes
       : part.part.kind == Kind::scales ? to.scales
       : part.part.kind == Kind::outer  ? to.outer
                                        : to.high) = out;
      type.split(block, to);
    }
  }
}

void GgufModel::copy(const GgufWeight& weight, std::int64_t begin, std::int64_t end,
                     std::byte* out) const {
  for (std::int64_t i = begin; i < end; ++i, out += weight.row_bytes())
    std::memcpy(out, row(weight, i), weight.row_bytes());
}

// A file does not say what to compute in. Where its matrices are of one type of floating point, it
// is that one. Gemma's activations leave the range of float16.
std::string GgufModel::dtype() const {
  bool f32 = true, f16 = architecture_ != "gemma3";
  for (const auto& [name, weight] : weights_)
    if (weight.tensor->shape.size() > 1) {
      f32 = f32 && weight.tensor->type->name == "F32";
      f16 = f16 && weight.tensor->type->name == "F16";
    }
  return f32 ? "float32" : f16 ? "float16" : "bfloat16";
}

void GgufModel::add_rope(Json& config) const {
  if (const auto theta = file_.number(key("rope.freq_base"))) config["rope_theta"] = *theta;
  const std::string type = file_.text(key("rope.scaling.type")).value_or("none");
  const bool yarn = type == "yarn";
  if (type != "none" && type != "linear" && !yarn)
    file_.fail(key("rope.scaling.type"),
               fmt::format("is {}, and only none, linear and yarn are supported", quote(type)));
  for (const std::string_view name : kKeysOfYarn)
    if (!yarn && file_.has(key(name))) file_.fail(key(name), "is set, and the scaling is not yarn");
  if (type == "none") return;
  Json scaling = {{"rope_type", type}, {"factor", number("rope.scaling.factor")}};
  if (yarn) {
    scaling["original_max_position_embeddings"] = count("rope.scaling.original_context_length");
    for (const char* const name : {"beta_fast", "beta_slow"})
      if (const auto value = file_.number(key(fmt::format("rope.scaling.yarn_{}", name))))
        scaling[name] = *value;
  }
  config["rope_scaling"] = scaling;
}

void GgufModel::add_gemma(Json& config) const {
  config["sliding_window"] = count("attention.sliding_window");
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  config["sliding_window_pattern"] = file_.has(key(kPattern)) ? count(kPattern) : 6;
  config["rope_local_base_freq"] = file_.number(key("rope.freq_base_swa")).value_or(10000);
  if (const auto cap = file_.number(key("final_logit_softcapping")))
    config["final_logit_softcapping"] = *cap;
  // Only the largest model, which has 62 layers, scales scores by another size than that of a head.
  const std::int64_t heads = config["num_attention_heads"];
  config["query_pre_attn_scalar"] = config["num_hidden_layers"] == 62
                                        ? config["hidden_size"].get<std::int64_t>() / heads
                                        : config["head_dim"].get<std::int64_t>();
}

Json GgufModel::config() const {
  const Architecture& architecture = find_architecture(architecture_);
  const auto weight = [&](const char* name) { return weights_.find(name); };
  const auto embedding = weight("model.embed_tokens.weight");
  if (embedding == weights_.end() || embedding->second.tensor->shape.size() != 2)
    bad_input("{}: there is no matrix \"token_embd.weight\"", file_.name());
  Json config = {{"architectures", {architecture.huggingface}},
                 {"model_type", architecture.model_type},
                 {"torch_dtype", dtype()},
                 {"vocab_size", embedding->second.tensor->shape[0]},
                 {"hidden_size", count("embedding_length")},
                 {"intermediate_size", count("feed_forward_length")},
                 {"num_hidden_layers", count("block_count")},
                 {"num_attention_heads", count("attention.head_count")},
                 {"max_position_embeddings", count("context_length")},
                 {"rms_norm_eps", number("attention.layer_norm_rms_epsilon")},
                 {"tie_word_embeddings", weight("lm_head.weight") == weights_.end()}};
  const std::int64_t heads = config["num_attention_heads"], hidden = config["hidden_size"];
  config["num_key_value_heads"] =
      file_.has(key("attention.head_count_kv")) ? count("attention.head_count_kv") : heads;

  std::int64_t head_dim = hidden / heads;
  if (file_.has(key("attention.key_length"))) {
    head_dim = count("attention.key_length");
    if (count("attention.value_length") != head_dim)
      file_.fail(key("attention.value_length"),
                 fmt::format("is not {}, as attention.key_length is", head_dim));
  } else if (hidden % heads != 0) {
    file_.fail(key("embedding_length"),
               fmt::format("is {}, and no multiple of attention.head_count, {}", hidden, heads));
  }
  config["head_dim"] = head_dim;
  constexpr const char* kRotated = "rope.dimension_count";
  if (file_.has(key(kRotated)) && count(kRotated) != head_dim)
    file_.fail(key(kRotated), fmt::format("is {}, and only whole heads of {} are rotated",
                                          count(kRotated), head_dim));
  add_rope(config);
  const std::int64_t window = file_.integer(key("attention.sliding_window")).value_or(0);
  if (architecture_ == "gemma3") {
    add_gemma(config);
  } else if (window != 0) {
    if (architecture_ != "llama")
      file_.fail(key("attention.sliding_window"),
                 fmt::format("is {}, and windows of this architecture are not supported", window));
    config["architectures"] = {"MistralForCausalLM"};
    config["model_type"] = "mistral";
    config["sliding_window"] = window;
  }
  const auto has_bias = [&](const char* module) {
    return weights_.contains(fmt::format("model.layers.0.{}.bias", module));
  };
  config["attention_bias"] = has_bias("self_attn.q_proj") && architecture_ != "qwen2";
  config["mlp_bias"] = has_bias("mlp.up_proj");
  if (file_.has("tokenizer.ggml.tokens")) {
    if (const auto begin = file_.integer("tokenizer.ggml.bos_token_id"))
      config["bos_token_id"] = *begin;
    config["eos_token_id"] = gguf_end_tokens(file_);
  }
  return config;
}

std::optional<std::string> gguf_document(const std::filesystem::path& path, std::string_view name) {
  if (name == "config.json") return GgufModel(path).config().dump(1);
  const GgufFile file(path);
  if (name == "tokenizer.json") return gguf_tokenizer(file);
  if (name == "tokenizer_config.json") return gguf_tokenizer_config(file).dump(1);
  return std::nullopt;
}

}  // namespace ac
