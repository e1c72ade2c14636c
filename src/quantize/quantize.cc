#include "quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "base/elements.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_files.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/weight_index.h"
#include "quantize/round_group.h"

namespace ac {
namespace {

namespace fs = std::filesystem;
using Kind = WeightsWanted::Kind;

constexpr int kUsualGroup = 128;
constexpr int kMostGroup = 1 << 15;
constexpr std::string_view kHead = "lm_head", kWeight = ".weight";
constexpr std::size_t kMostTextBytes = 256u << 20;
constexpr int kWordBits = 32;

struct Linear {
  std::string module;
  std::vector<std::int64_t> shape;
  Format format;
  DType scale_type;
};

Format format_of(const WeightsWanted& wanted, DType scale_type) {
  const std::string_view codes = wanted.kind == Kind::fp8    ? "e4m3"
                                 : wanted.kind == Kind::int8 ? "u8"
                                                             : "u4";
  const std::string blocks = wanted.group > 0 ? fmt::format("g{}", wanted.group) : "row";
  const std::string type =
      scale_type == DType::f32 ? "" : fmt::format("_{}", short_name(scale_type));
  return find_format(fmt::format("{}_{}{}", codes, blocks, type)).value().format;
}

// Weights that nothing but a linear reads, by the key of their tensor.
std::map<std::string, Linear> linears_of(const Model& model, const QuantizeOptions& options) {
  std::map<std::string, Linear> linears;
  std::set<std::string> others;
  const Graph& graph = model.graph;
  for (const Node& node : graph.nodes)
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& weight = graph[node.inputs[i]];
      if (weight.op != Op::weight) continue;
      const std::string& key = weight.text("key");
      if (node.op != Op::linear || i != 1 || !key.ends_with(kWeight)) {
        others.insert(key);
        continue;
      }
      const std::string module = key.substr(0, key.size() - kWeight.size());
      if (module == kHead && !options.head) continue;
      std::vector<std::int64_t> shape;
      for (const Dim& dim : weight.type.shape) shape.push_back(dim.constant());
      const DType type = weight.type.dtype;
      linears.emplace(key, Linear{module, shape, format_of(options.weights, type), type});
    }
  for (const std::string& key : others) linears.erase(key);
  if (options.head && !linears.contains(std::string(kHead) + std::string(kWeight)))
    wrong_usage(
        "--head-weights: the head of this model is its embedding (tie_word_embeddings), which "
        "stays as it is: leave the option out");
  return linears;
}

void check_group(const Linear& linear, const std::string& file) {
  const std::int64_t columns = linear.shape[1];
  const int group = linear.format.columns;
  if (group > 0 && columns % group != 0) {
    int other = kUsualGroup;
    while (columns % other != 0 && other > 1) other /= 2;
    bad_input("{}: tensor {} has rows of {} weights, which groups of {} do not divide{}", file,
              quote(linear.module + std::string(kWeight)), columns, group,
              other >= 16 ? fmt::format(": --weights int4:{} does", other) : "");
  }
  if (const std::string why = why_impossible(linear.format, linear.shape); !why.empty())
    bad_input("{}: tensor {}: {}", file, quote(linear.module + std::string(kWeight)), why);
}

// Calls `work` with each row, in all threads that the machine has.
void each_row(std::int64_t rows,
              const std::function<void(std::int64_t first, std::int64_t end)>& work) {
  constexpr std::int64_t kTogether = 16;
  std::atomic<std::int64_t> next = 0;
  const auto some = [&] {
    for (std::int64_t first; (first = next.fetch_add(kTogether)) < rows;)
      work(first, std::min(rows, first + kTogether));
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) others.emplace_back(some);
  some();
}

// What is stored of one weight.
class Rounding {
 public:
  Rounding(const Linear& linear, const TensorView& view, const std::vector<float>& importance)
      : linear_(linear),
        view_(view),
        importance_(importance),
        rows_(static_cast<std::size_t>(linear.shape[0])),
        columns_(static_cast<std::size_t>(linear.shape[1])),
        group_(linear.format.columns > 0 ? static_cast<std::size_t>(linear.format.columns)
                                         : columns_),
        pitch_(row_bytes(linear)),
        codes(rows_ * pitch_),
        scales(rows_ * (columns_ / group_) * bytes_of(linear.scale_type)) {
    std::vector<std::pair<Squares, Squares>> of_rows(rows_);
    std::atomic<bool> is_finite = true;
    each_row(linear.shape[0], [&](std::int64_t first, std::int64_t end) {
      for (auto row = static_cast<std::size_t>(first); row < static_cast<std::size_t>(end); ++row)
        if (!round_row(row, of_rows[row].first, of_rows[row].second)) is_finite = false;
    });
    if (!is_finite)
      bad_input("{}: tensor {} has a NaN or an infinity", view.file, quote(view.name));
    for (const auto& [of_row, of_row_weighted] : of_rows) {
      plain.add(of_row);
      weighted.add(of_row_weighted);
    }
  }

  // Of codes: whole ones are in words.
  static std::size_t row_bytes(const Linear& linear) {
    const auto bits = static_cast<std::size_t>(bits_of(linear.format.codes) * linear.shape[1]);
    return is_whole(linear.format.codes) ? (bits + kWordBits - 1) / kWordBits * 4 : bits / 8;
  }

 private:
  // False: the row has a weight that is not finite.
  bool round_row(std::size_t row, Squares& plain_of_row, Squares& weighted_of_row) {
    std::vector<double> wide(columns_);
    load_elements(view_.dtype, view_.bytes.data() + row * columns_ * bytes_of(view_.dtype), wide);
    std::vector<float> weights(wide.begin(), wide.end()), rounded(columns_);
    for (const float weight : weights)
      if (!std::isfinite(weight)) return false;
    const std::size_t groups = columns_ / group_, scale_bytes = bytes_of(linear_.scale_type);
    for (std::size_t group = 0; group < groups; ++group) {
      const RoundedGroup made = round_group(linear_.format.codes, linear_.scale_type,
                                            std::span(weights).subspan(group * group_, group_),
                                            std::span(importance_).subspan(group * group_, group_),
                                            std::span(rounded).subspan(group * group_, group_));
      store_element(linear_.scale_type, made.scale,
                    scales.data() + (row * groups + group) * scale_bytes);
      for (std::size_t i = group * group_; i < (group + 1) * group_; ++i) {
        const double error = double{weights[i]} - double{rounded[i]} * made.scale;
        const double square = double{weights[i]} * double{weights[i]};
        plain_of_row.add({error * error, square});
        weighted_of_row.add(
            {error * error * double{importance_[i]}, square * double{importance_[i]}});
      }
    }
    std::byte* const to = codes.data() + row * pitch_;
    const auto bits = static_cast<std::size_t>(bits_of(linear_.format.codes));
    for (std::size_t i = 0; i < columns_; ++i) {
      if (!is_whole(linear_.format.codes)) {
        store_element(DType::f8e4m3, rounded[i], to + i);
      } else {
        const int code = static_cast<int>(rounded[i]) + middle_of(linear_.format.codes);
        to[i * bits / 8] |= static_cast<std::byte>(code << i * bits % 8);
      }
    }
    return true;
  }

  const Linear& linear_;
  const TensorView& view_;
  const std::vector<float>& importance_;
  const std::size_t rows_, columns_, group_, pitch_;

 public:
  std::vector<std::byte> codes, scales;
  Squares plain, weighted;
};

// The tensors that take the place of one of the source. Of a linear: codes, scales, and what is
// packed says its shape.
std::vector<TensorToWrite> tensors_for(const TensorView& view, const Linear* linear) {
  if (!linear) return {{view.name, view.dtype, view.shape}};
  const std::int64_t rows = linear->shape[0], group = linear->format.columns;
  const auto bytes = static_cast<std::int64_t>(Rounding::row_bytes(*linear));
  const TensorToWrite scales{linear->module + ".weight_scale",
                             linear->scale_type,
                             {rows, group > 0 ? linear->shape[1] / group : 1}};
  if (!is_whole(linear->format.codes)) return {{view.name, DType::f8e4m3, linear->shape}, scales};
  return {{linear->module + ".weight_packed", DType::i32, {rows, bytes / 4}},
          scales,
          {linear->module + ".weight_shape", DType::i64, {2}}};
}

Json quantization_config(const QuantizeOptions& options) {
  const bool is_float = options.weights.kind == Kind::fp8;
  Json weights{{"num_bits", options.weights.kind == Kind::int4 ? 4 : 8},
               {"type", is_float ? "float" : "int"},
               {"strategy", options.weights.group > 0 ? "group" : "channel"},
               {"symmetric", true},
               {"dynamic", false}};
  if (options.weights.group > 0) weights["group_size"] = options.weights.group;
  const std::string_view format = is_float ? "float-quantized" : "pack-quantized";
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", Json::array({"Linear"})},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr},
              {"format", format}}}}},
          {"ignore", options.head ? Json::array() : Json::array({kHead})},
          {"kv_cache_scheme", nullptr}};
}

// Tokenizer, templates, licence: all files of the folder that are neither weights nor code.
void copy_other_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const std::string ending = entry.path().extension().string();
    const bool wanted = ending == ".json" || ending == ".jinja" || ending == ".txt" ||
                        ending == ".model" || name.starts_with("LICENSE");
    if (!wanted || name == "config.json" || name.ends_with(".index.json")) continue;
    if (const auto path = find_model_file(from, name))
      write_file(to / name, read_file(*path, kMostTextBytes));
  }
  const fs::path templates = "additional_chat_templates";
  if (!fs::is_directory(from / templates)) return;
  fs::create_directory(to / templates);
  for (const auto& entry : fs::directory_iterator(from / templates))
    if (const fs::path name = templates / entry.path().filename(); name.extension() == ".jinja")
      if (const auto path = find_model_file(from, name.string()))
        write_file(to / name, read_file(*path, kMostTextBytes));
}

struct Shard {
  std::vector<std::string> keys;  // of the source
  std::vector<TensorToWrite> tensors;
  std::uint64_t bytes = 0;
};

std::string name_of_shard(std::size_t index, std::size_t count) {
  return count == 1 ? kSingleWeights
                    : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

}  // namespace

double Squares::relative() const { return of_weights > 0 ? std::sqrt(of_errors / of_weights) : 0; }

WeightsWanted parse_weights(const std::string& text, const std::string& option) {
  if (text == "fp8") return {Kind::fp8};
  if (text == "int8") return {Kind::int8};
  if (text == "int4") return {Kind::int4, kUsualGroup};
  constexpr std::string_view kGroups = "int4:";
  if (text.starts_with(kGroups)) {
    int group = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + kGroups.size(), end, group);
    // Multiples of 8, so that a word of codes is of one group.
    if (read.ec == std::errc() && read.ptr == end && group > 0 && group <= kMostGroup &&
        group % 8 == 0)
      return {Kind::int4, group};
    wrong_usage("{} {}: the group must be a multiple of 8, at most {}", option, text, kMostGroup);
  }
  wrong_usage("{} {}: write fp8, int8, int4, or int4:GROUP", option, quote(text));
}

Quantized quantize(const Model& model, const QuantizeOptions& options, const fs::path& to) {
  std::error_code error;
  if (model.stores.size() != 1 || !fs::is_directory(model.stores.begin()->second, error))
    bad_input("quantize: only a HuggingFace folder with config.json and safetensors is read");
  const fs::path& from = model.stores.begin()->second;
  const std::string config_path = (from / "config.json").string();
  Json config = read_json(from / "config.json");
  if (const auto said = config.find("quantization_config");
      said != config.end() && !said->is_null())
    bad_input(
        "{}: is quantized already (quantization_config.quant_method is {}): name the "
        "checkpoint that it was made from",
        config_path,
        said->is_object() && said->contains("quant_method") ? (*said)["quant_method"].dump()
                                                            : "not said");
  if (fs::exists(from / "hf_quant_config.json", error))
    bad_input("{}: is quantized already: name the checkpoint that it was made from",
              (from / "hf_quant_config.json").string());
  const std::map<std::string, Linear> linears = linears_of(model, options);
  const Checkpoint checkpoint = Checkpoint::open_model(from);
  const auto linear_of = [&](const std::string& key) {
    const auto found = linears.find(key);
    return found == linears.end() ? nullptr : &found->second;
  };

  Quantized result;
  std::vector<Shard> shards(1);
  std::set<std::string> names;
  for (const auto& [key, linear] : linears) checkpoint.require(key, linear.shape);
  for (const std::string& key : checkpoint.keys()) {
    const TensorView view = checkpoint.find(key).value();
    const Linear* const linear = linear_of(key);
    if (linear) {
      check_group(*linear, view.file);
      if (!is_float(view.dtype))
        bad_input("{}: tensor {} is stored as {}: weights of 16 or 32 bits are wanted", view.file,
                  quote(key), torch_name(view.dtype));
    }
    const std::vector<TensorToWrite> tensors = tensors_for(view, linear);
    std::uint64_t bytes = 0;
    for (const TensorToWrite& tensor : tensors) {
      if (!names.insert(tensor.name).second)
        bad_input("{}: has a tensor {}, and one of this name is to be written", from.string(),
                  quote(tensor.name));
      bytes += tensor.bytes();
    }
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > options.most_in_shard)
      shards.emplace_back();
    Shard& shard = shards.back();
    shard.keys.push_back(key);
    shard.tensors.insert(shard.tensors.end(), tensors.begin(), tensors.end());
    shard.bytes += bytes;
    result.bytes += bytes;
    result.bytes_before += view.bytes.size();
  }
  if (const fs::space_info space = fs::space(to, error); !error && space.available < result.bytes)
    job_failed("{}: {:.2f} GB are free, and {:.2f} GB are to be written", to.string(),
               static_cast<double>(space.available) * 1e-9,
               static_cast<double>(result.bytes) * 1e-9);

  const Importance importance = options.measure ? options.measure() : Importance{};
  Json places = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = name_of_shard(i, shards.size());
    for (const TensorToWrite& tensor : shards[i].tensors) places[tensor.name] = file;
    SafetensorsWriter writer(to / file, shards[i].tensors);
    for (const std::string& key : shards[i].keys) {
      const TensorView view = checkpoint.find(key).value();
      const Linear* const linear = linear_of(key);
      if (!linear) {
        writer.write(key, view.bytes);
        continue;
      }
      const auto important = importance.find(key);
      const std::vector<float> alike(static_cast<std::size_t>(linear->shape[1]), 1.0f);
      const Rounding made(*linear, view, important == importance.end() ? alike : important->second);
      const std::vector<TensorToWrite> names = tensors_for(view, linear);
      writer.write(names[0].name, made.codes);
      writer.write(names[1].name, made.scales);
      if (names.size() > 2) writer.write(names[2].name, std::as_bytes(std::span(linear->shape)));
      result.layers.push_back({linear->module, linear->shape, made.plain, made.weighted});
      result.plain.add(made.plain);
      result.weighted.add(made.weighted);
      if (options.on_layer) options.on_layer(result.layers.size(), linears.size(), linear->module);
    }
    writer.finish();
  }
  if (shards.size() > 1)
    write_file(
        to / kWeightIndex,
        Json{{"metadata", {{"total_size", result.bytes}}}, {"weight_map", places}}.dump(2) + "\n");
  copy_other_files(from, to);
  config["quantization_config"] = quantization_config(options);
  write_file(to / "config.json", config.dump(2) + "\n");
  return result;
}

}  // namespace ac
