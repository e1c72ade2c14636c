#include "capture/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/warning.h"

namespace ac {
namespace {

constexpr const char* kInstead = "use the checkpoint in float32, float16 or bfloat16";
constexpr std::int64_t kMostInGroup = 1 << 16;

// ---- what is refused by name

struct Reason {
  std::string_view name, why;
};
constexpr Reason kOtherMethods[] = {
    {"mxfp4", "MXFP4 as gpt-oss stores it, of experts, is not supported"},
    {"fp_quant", "rotations of weights are not supported"},
    {"gguf", "GGUF is not supported"},
    {"bitsandbytes", "codes that a table translates are not supported"},
    {"bitnet", "ternary weights are not supported"},
    {"fbgemm_fp8", "scales of activations that bound them are not supported"},
};
constexpr Reason kOtherFormats[] = {
    {"mxfp8-quantized", "scales that are powers of two (MXFP8) are not supported"},
    {"marlin-24", "sparse weights are not supported"},
    {"sparse-bitmask", "sparse weights are not supported"},
    {"sparse-24-bitmask", "sparse weights are not supported"},
    {"mixed-precision", "several formats in one checkpoint are not supported"},
};

constexpr Reason kOtherAlgorithms[] = {
    {"MIXED_PRECISION", "several formats in one checkpoint are not supported"},
    {"NVFP4_AWQ", "scales of inputs are not supported"},
    {"W4A8_AWQ", "scales of inputs are not supported"},
    {"W4A16_AWQ", "scales of inputs are not supported"},
};

[[noreturn]] void refuse(const ConfigFields& config, const char* field, const std::string& value,
                         std::span<const Reason> reasons, std::string_view known) {
  const auto found = std::ranges::find(reasons, value, &Reason::name);
  config.fail(field, fmt::format("is {}{}: {} are known; {}", brief(Json(value)),
                                 found == reasons.end() ? "" : fmt::format(", and {}", found->why),
                                 known, kInstead));
}

void refuse_if_set(const ConfigFields& config, const char* field, std::string_view why) {
  if (!config.has_value(field)) return;
  const Json& value = config[field];
  if (value == Json(false) || (value.is_structured() && value.empty())) return;
  config.fail(field, fmt::format("is set, and {}: {}", why, kInstead));
}

// ---- names of modules

std::vector<std::string> names_in(const ConfigFields& config, const char* field) {
  std::vector<std::string> names;
  const Json& list = config[field];
  if (!list.is_array()) config.wrong(field, "a list of modules' names");
  for (const Json& name : list) {
    if (!name.is_string() || name.get<std::string>().empty())
      config.wrong(field, "a list of modules' names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

// transformers reads them as regular expressions; a plain path is one that means itself.
std::vector<std::string> paths_in(const ConfigFields& config, const char* field) {
  std::vector<std::string> paths = names_in(config, field);
  for (const std::string& path : paths)
    if (path.find_first_of("*+?[](){}|^$\\") != std::string::npos)
      config.fail(field, fmt::format("holds {}: patterns are not supported", brief(Json(path))));
  return paths;
}

// ---- fields

void only(const ConfigFields& config, const char* field, const char* value) {
  if (config.has_value(field) && config.text(field) != value)
    config.wrong(field, fmt::format("\"{}\"", value));
}

Codes whole_codes(const ConfigFields& config, const char* field) {
  const std::int64_t bits = config.integer(field, 1, 64);
  if (bits != 4 && bits != 8) config.wrong(field, "4 or 8");
  return bits == 4 ? Codes::u4 : Codes::u8;
}

// 0: a whole row.
int group_size(const ConfigFields& config, std::optional<std::int64_t> fallback = {}) {
  const std::int64_t size = config.integer("group_size", -1, kMostInGroup, fallback);
  if (size == 0) config.wrong("group_size", "a positive number, or -1");
  return size < 0 ? 0 : static_cast<int>(size);
}

// ---- as transformers' FineGrainedFP8Config reads it

Quantization read_fine_grained(const ConfigFields& config) {
  only(config, "fmt", "e4m3"), only(config, "activation_scheme", "dynamic");
  only(config, "scale_fmt", "float"), only(config, "expert_dtype", "fp8");
  // transformers' default is this size too; a null means one scale a matrix.
  constexpr int kBlock = 128;
  if (config.has("weight_block_size") && config["weight_block_size"] != Json{kBlock, kBlock})
    config.wrong("weight_block_size", "[128, 128]");
  if (config.has_value("modules_to_convert"))
    config.fail("modules_to_convert", "is set, but embeddings must be plain");
  Quantization result{{.codes = Codes::e4m3, .rows = kBlock, .columns = kBlock},
                      FileLayout::fine_grained};
  // Without a list, transformers leaves the head alone.
  result.plain_modules = {"lm_head"};
  for (const char* field : {"modules_to_not_convert", "ignored_layers"})
    if (config.has_value(field)) {
      result.plain_modules = paths_in(config, field);
      break;
    }
  return result;
}

// ---- as compressed-tensors' QuantizationConfig has it

constexpr const char* kKnownFormats =
    "pack-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, float-quantized, int-quantized "
    "and "
    "naive-quantized";
constexpr std::string_view kNvfp4 = "nvfp4-pack-quantized", kMxfp4 = "mxfp4-pack-quantized";
constexpr Format kNvfp4Format{
    .codes = Codes::e2m1, .scale = ScaleType::e4m3, .columns = 16, .global = true};
constexpr Format kMxfp4Format{.codes = Codes::e2m1, .scale = ScaleType::e8m0, .columns = 32};

void read_blocks(const ConfigFields& weights, Format& format) {
  const std::string strategy = weights.text("strategy");
  if (strategy == "channel") return;
  if (strategy == "tensor") {
    format.rows = 0;
  } else if (strategy == "group") {
    format.columns = group_size(weights);
  } else if (strategy == "block") {
    const Json& sizes = weights.has_value("block_structure") ? weights["block_structure"] : Json();
    const auto is_size = [](const Json& size) {
      return size.is_number_integer() && size > 0 && size <= kMostInGroup;
    };
    if (!sizes.is_array() || sizes.size() != 2 || !is_size(sizes[0]) || !is_size(sizes[1]))
      weights.wrong("block_structure", "a list of two sizes");
    format.rows = sizes[0].get<int>(), format.columns = sizes[1].get<int>();
  } else {
    weights.wrong("strategy", "\"tensor\", \"channel\", \"group\" or \"block\"");
  }
}

// Floats of 4 bits: all of their format follows from its name.
Format format_of_fp4(const ConfigFields& weights, std::string_view stored) {
  const bool nvfp4 = stored == kNvfp4;
  const Format format = nvfp4 ? kNvfp4Format : kMxfp4Format;
  if (weights.text("type") != "float") weights.wrong("type", "\"float\"");
  if (weights.integer("num_bits", 1, 64) != 4) weights.wrong("num_bits", "4");
  if (!weights.boolean("symmetric", true)) weights.wrong("symmetric", "true");
  if (weights.text("strategy") != (nvfp4 ? "tensor_group" : "group"))
    weights.wrong("strategy", nvfp4 ? "\"tensor_group\"" : "\"group\"");
  if (group_size(weights) != format.columns)
    weights.wrong("group_size", fmt::format("{}", format.columns));
  only(weights, "scale_dtype", nvfp4 ? "torch.float8_e4m3fn" : "torch.uint8");
  return format;
}

Format format_of_weights(const ConfigFields& weights, std::string_view stored) {
  if (stored == kNvfp4 || stored == kMxfp4) return format_of_fp4(weights, stored);
  const bool is_float = weights.text("type") == "float";
  if (!is_float) only(weights, "type", "int");
  const bool packed = stored == "pack-quantized";
  if ((stored == "float-quantized" && !is_float) ||
      ((stored == "int-quantized" || packed) && is_float))
    weights.wrong("type", fmt::format("\"{}\" with {}", is_float ? "int" : "float", stored));
  Format format{.codes = Codes::e4m3};
  if (is_float) {
    if (weights.integer("num_bits", 1, 64) != 8) weights.wrong("num_bits", "8, of floats");
  } else {
    format.codes = whole_codes(weights, "num_bits");
    format.zeros = !weights.boolean("symmetric", true);
    if (!packed && format.codes != Codes::u8)
      weights.wrong("num_bits", fmt::format("8 with {}", stored));
  }
  read_blocks(weights, format);
  if (weights.has_value("dynamic") && weights["dynamic"] != Json(false))
    weights.wrong("dynamic", "false");
  if (weights.has_value("actorder")) {
    // "static" and "weight" sort columns while scales are searched for, and back afterwards.
    const Json& order = weights["actorder"];
    if (order != "static" && order != "weight" && order != "group")
      weights.wrong("actorder", "\"group\", \"static\" or \"weight\"");
    format.listed = order == "group";
    if (format.listed && (!packed || format.rows != 1 || format.columns == 0))
      weights.fail("actorder", "is \"group\", which is known of pack-quantized groups alone");
  }
  return format;
}

void check_activations(const ConfigFields& group) {
  refuse_if_set(group, "output_activations", "outputs of linears stay in the model's type");
  if (!group.has_value("input_activations")) return;
  const ConfigFields activations = group.inside("input_activations");
  if (!activations.has_value("dynamic") || activations["dynamic"] == Json(false))
    activations.fail("dynamic",
                     fmt::format("is false: activations with scales of the checkpoint (static) are "
                                 "not supported; {}",
                                 kInstead));
}

Quantization read_compressed(const ConfigFields& config) {
  refuse_if_set(config, "kv_cache_scheme",
                "the cache of keys and values stays in the model's type");
  refuse_if_set(config, "transform_config", "rotations of weights are not supported");
  if (config.has_value("sparsity_config") && !config["sparsity_config"].empty()) {
    const ConfigFields sparsity = config.inside("sparsity_config");
    only(sparsity, "format", "dense");
  }
  if (!config.has_value("config_groups")) config.wrong("config_groups", "an object");
  const ConfigFields groups = config.inside("config_groups");
  if (config["config_groups"].size() != 1)
    config.fail("config_groups", fmt::format("has {} groups, and one is supported: {}",
                                             config["config_groups"].size(), kInstead));
  const std::string name = config["config_groups"].begin().key();
  const ConfigFields group = groups.inside(name);
  if (!group.has_value("targets") || group["targets"] != Json{"Linear"})
    group.wrong("targets", "[\"Linear\"]");
  const ConfigFields& says = group.has_value("format") ? group : config;
  const std::string stored = says.text("format");
  constexpr std::string_view known[] = {"pack-quantized",  kNvfp4,          kMxfp4,
                                        "float-quantized", "int-quantized", "naive-quantized"};
  if (std::ranges::find(known, stored) == std::end(known))
    refuse(says, "format", stored, kOtherFormats, kKnownFormats);
  if (!group.has_value("weights")) group.wrong("weights", "an object");
  check_activations(group);
  Quantization result{format_of_weights(group.inside("weights"), stored),
                      stored == "pack-quantized"             ? FileLayout::packed
                      : stored == kNvfp4 || stored == kMxfp4 ? FileLayout::packed_fp4
                                                             : FileLayout::compressed};
  if (!config.has_value("ignore")) return result;
  constexpr std::string_view kPattern = "re:";
  for (const std::string& ignored : names_in(config, "ignore")) {
    if (!ignored.starts_with(kPattern)) {
      result.plain_paths.push_back(ignored);
      continue;
    }
    result.plain_patterns.push_back(ignored.substr(kPattern.size()));
    if (!is_simple_pattern(result.plain_patterns.back()))
      config.fail("ignore", fmt::format("holds {}: of patterns, '.', '*', '^' and '$' are known",
                                        brief(Json(ignored))));
  }
  return result;
}

// ---- as AutoAWQ writes it

Quantization read_awq(const ConfigFields& config) {
  std::string version = config.text("version", "gemm");
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm") config.wrong("version", "\"gemm\"");
  if (whole_codes(config, "bits") != Codes::u4) config.wrong("bits", "4");
  if (!config.boolean("zero_point", true)) config.wrong("zero_point", "true");
  Quantization result{{.codes = Codes::u4, .zeros = true, .columns = group_size(config, 128)},
                      FileLayout::awq};
  if (config.has_value("modules_to_not_convert"))
    result.plain_modules = paths_in(config, "modules_to_not_convert");
  result.plain_modules.push_back("lm_head");
  return result;
}

// ---- as AutoGPTQ and GPTQModel write it

Quantization read_gptq(const ConfigFields& config) {
  refuse_if_set(config, "dynamic", "several formats in one checkpoint are not supported");
  refuse_if_set(config, "is_marlin_format", "weights ordered for a kernel are not supported");
  only(config, "pack_dtype", "int32");
  const std::string stored = config.text("checkpoint_format", "gptq");
  if (stored != "gptq" && stored != "gptq_v2")
    config.wrong("checkpoint_format", "\"gptq\" or \"gptq_v2\"");
  // Where it is symmetric, all zero points are the middle, whatever the version.
  Format format{.codes = whole_codes(config, "bits"),
                .zeros = !config.boolean("sym", true),
                .columns = group_size(config, 128)};
  format.listed = format.columns > 0 && config.boolean("desc_act", false);
  if (format.zeros && format.codes == Codes::u8 && stored == "gptq")
    config.fail("sym",
                fmt::format("is false with 8 bits, where version 1 cannot tell a zero point of "
                            "0 from 256: {}",
                            kInstead));
  Quantization result{format, stored == "gptq" ? FileLayout::gptq : FileLayout::gptq_v2};
  if (config.has_value("modules_in_block_to_quantize")) {
    const Json& all = config["modules_in_block_to_quantize"];
    for (const Json& some : all.is_array() ? all : Json::array())
      for (const Json& name : some.is_array() ? some : Json::array({some})) {
        if (!name.is_string()) config.wrong("modules_in_block_to_quantize", "names of modules");
        result.only.push_back("." + name.get<std::string>());
      }
    if (result.only.empty()) config.wrong("modules_in_block_to_quantize", "names of modules");
  }
  if (!config.boolean("lm_head", false)) result.plain_modules = {"lm_head"};
  return result;
}

// ---- as ModelOpt writes it

// A path, or a pattern of file names: '*' is anything.
void leave_alone(const ConfigFields& config, const char* field, Quantization& result) {
  for (const std::string& name : names_in(config, field)) {
    if (name.find('*') == std::string::npos) {
      result.plain_modules.push_back(name);
      continue;
    }
    std::string pattern = "^";
    for (const char c : name) pattern += c == '*' ? ".*" : c == '.' ? "\\." : std::string(1, c);
    pattern += '$';
    if (!is_simple_pattern(pattern))
      config.fail(field, fmt::format("holds {}: of patterns, up to three '*' are known",
                                     brief(Json(name))));
    result.plain_patterns.push_back(pattern);
  }
}

Quantization read_modelopt(const ConfigFields& config) {
  const ConfigFields said =
      config.has_value("quantization") ? config.inside("quantization") : config;
  const std::string algorithm = said.text("quant_algo");
  const bool nvfp4 = algorithm == "NVFP4" || algorithm == "W4A16_NVFP4";
  if (!nvfp4 && algorithm != "FP8")
    refuse(said, "quant_algo", algorithm, kOtherAlgorithms, "FP8, NVFP4 and W4A16_NVFP4");
  refuse_if_set(said, "quantized_layers", "several formats in one checkpoint are not supported");
  Quantization result{nvfp4 ? kNvfp4Format : Format{.codes = Codes::e4m3, .rows = 0},
                      nvfp4 ? FileLayout::modelopt : FileLayout::compressed};
  const auto check_group = [&](const ConfigFields& fields) {
    if (nvfp4 && fields.has_value("group_size") && group_size(fields) != kNvfp4Format.columns)
      fields.wrong("group_size", "16");
  };
  check_group(said);
  if (said.has_value("config_groups")) {
    const ConfigFields groups = said.inside("config_groups");
    for (const auto& [name, group] : said["config_groups"].items()) {
      const ConfigFields fields = groups.inside(name);
      refuse_if_set(fields, "pre_quant_scale", "scales of inputs are not supported");
      if (fields.has_value("weights")) check_group(fields.inside("weights"));
    }
  }
  for (const char* field : {"exclude_modules", "ignore"})
    if (said.has_value(field)) leave_alone(said, field, result);
  const bool cache = said.has_value("kv_cache_quant_algo") || said.has_value("kv_cache_scheme");
  if (algorithm != "W4A16_NVFP4" || cache)
    warn(
        "{}: activations and the cache of keys and values stay in the model's type; ModelOpt's "
        "scales for them are not used",
        config.origin());
  return result;
}

struct Method {
  std::string_view name;
  Quantization (*read)(const ConfigFields& config);
};
constexpr Method kMethods[] = {{"fp8", read_fine_grained},  {"compressed-tensors", read_compressed},
                               {"awq", read_awq},           {"gptq", read_gptq},
                               {"modelopt", read_modelopt}, {"modelopt_fp4", read_modelopt}};

}  // namespace

Quantization read_quantization(const ConfigFields& config) {
  if (!config.has_value("quantization_config")) return {};
  const ConfigFields said = config.inside("quantization_config");
  const std::string method = said.text("quant_method");
  for (const Method& known : kMethods)
    if (known.name == method) return known.read(said);
  refuse(said, "quant_method", method, kOtherMethods,
         "fp8, compressed-tensors, awq, gptq and modelopt");
}

Quantization read_hf_quant_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "hf_quant_config.json";
  if (!std::filesystem::exists(file)) return {};
  const Json json = read_config_json(file);
  const std::string origin = file.string();
  return read_modelopt(ConfigFields(json, origin));
}

Quantization quantization_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const Json json = read_config_json(file);
  const std::string origin = file.string();
  const ConfigFields config(json, origin);
  return config.has_value("quantization_config") ? read_quantization(config)
                                                 : read_hf_quant_config(folder);
}

StoredFormat Quantization::stored_as(std::string_view module) const {
  if (!of_module.empty()) {
    const auto found = of_module.find(module);
    return found == of_module.end() ? StoredFormat{} : found->second;
  }
  for (const std::string& name : plain_modules) {
    const bool begins =
        module.starts_with(name) && (module.size() == name.size() || module[name.size()] == '.');
    if (begins || module.ends_with(name)) return {};
  }
  const bool is_plain =
      std::ranges::find(plain_paths, module) != plain_paths.end() ||
      std::ranges::any_of(plain_patterns,
                          [&](const std::string& p) { return matches(p, module); }) ||
      (!only.empty() &&
       std::ranges::none_of(only, [&](const std::string& end) { return module.ends_with(end); }));
  return is_plain ? StoredFormat{} : StoredFormat{format, layout};
}

bool is_simple_pattern(std::string_view pattern) {
  constexpr int kMostStars = 3;  // each multiplies how long a match may take
  int stars = 0;
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  if (pattern.ends_with('$') && !pattern.ends_with("\\$")) pattern.remove_suffix(1);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (++i == pattern.size() || std::isalnum(static_cast<unsigned char>(pattern[i])))
        return false;
    } else if (std::string_view("*+?[](){}|^$").find(pattern[i]) != std::string_view::npos) {
      return false;
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '*') ++stars, ++i;
  }
  return stars <= kMostStars;
}

bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  if (pattern.empty()) return true;
  if (pattern == "$") return text.empty();
  const std::size_t size = pattern[0] == '\\' ? 2 : 1;
  const bool any = pattern[0] == '.';
  const char literal = pattern[size - 1];
  const std::string_view rest = pattern.substr(size);
  const auto first = [&] { return !text.empty() && (any || text[0] == literal); };
  if (!rest.starts_with('*')) return first() && matches(rest, text.substr(1));
  while (!matches(rest.substr(1), text)) {
    if (!first()) return false;
    text.remove_prefix(1);
  }
  return true;
}

}  // namespace ac
