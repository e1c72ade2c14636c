// Quantising: scales and codes of a group against a plain search, the writer of safetensors files
// against their reader, and a whole model against what the front end reads of it.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/temporary_folder.h"
#include "capture/model_weights.h"
#include "capture/native.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "expect_error.h"
#include "quantize/calibrate.h"
#include "quantize/quantize.h"
#include "quantize/round_group.h"

using namespace ac;
namespace fs = std::filesystem;

namespace {

// All numbers that are multiplied with a scale.
std::vector<double> codes_of(Codes kind) {
  std::vector<double> codes;
  if (is_whole(kind)) {
    for (int code = -middle_of(kind); code < middle_of(kind); ++code) codes.push_back(code);
    return codes;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto bits = static_cast<std::uint8_t>(byte);
    if (const double code = load_element(DType::f8e4m3, &bits); !std::isnan(code))
      codes.push_back(code);
  }
  return codes;
}

// With the nearest code for each weight.
double least_error(const std::vector<float>& weights, const std::vector<float>& importance,
                   double scale, const std::vector<double>& codes) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    double least = INFINITY;
    for (const double code : codes) least = std::min(least, std::fabs(weights[i] - code * scale));
    sum += least * least * importance[i];
  }
  return sum;
}

std::vector<float> random_weights(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> weights(count);
  for (float& weight : weights) weight = normal(random);
  return weights;
}

std::string bytes_of_file(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
}

const Json kTiny{{"architectures", {"Qwen3ForCausalLM"}},
                 {"model_type", "qwen3"},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 16},
                 {"vocab_size", 40},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "bfloat16"}};

std::vector<std::int64_t> shape_of(const Node& weight) {
  std::vector<std::int64_t> shape;
  for (const Dim& dim : weight.type.shape) shape.push_back(dim.constant());
  return shape;
}

// A model of random weights, and of `more` tensors that it has no use for.
void write_model(const fs::path& folder, const std::vector<std::string>& more = {}) {
  fs::create_directories(folder);
  write_file(folder / "config.json", kTiny.dump());
  const Model model = capture_native(folder);
  std::vector<TensorToWrite> tensors;
  for (const Node& node : model.graph.nodes)
    if (node.op == Op::weight)
      tensors.push_back({node.text("key"), node.type.dtype, shape_of(node)});
  for (const std::string& name : more) tensors.push_back({name, DType::bf16, {2}});
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  std::uint64_t seed = 1;
  for (const TensorToWrite& tensor : tensors) {
    std::vector<std::byte> bytes(tensor.bytes());
    const std::vector<float> weights = random_weights(bytes.size() / 2, seed++);
    for (std::size_t i = 0; i < weights.size(); ++i)
      store_element(DType::bf16, weights[i], &bytes[2 * i]);
    writer.write(tensor.name, bytes);
  }
  writer.finish();
}

// The elements that a weight of the model means.
std::vector<double> elements_of(ModelWeights& weights, const Node& node) {
  const std::vector<Node> parts = parts_of(node);
  std::vector<WeightView> views;
  for (const Node& part : parts) views.push_back(weights.lookup()(part));
  const std::vector<std::int64_t> shape = shape_of(node);
  std::vector<double> elements(static_cast<std::size_t>(shape[0] * shape[1]));
  format_of(node).read(
      shape, 0, shape[0] * shape[1],
      [&](std::size_t part, std::int64_t first, std::int64_t count, double* out) {
        const WeightView& view = views[part];
        for (std::int64_t i = 0; i < count; ++i)
          out[i] = load_element(
              view.dtype, view.data + static_cast<std::size_t>(first + i) * bytes_of(view.dtype));
      },
      elements.data());
  return elements;
}

}  // namespace

TEST_CASE("a group's scale is near the best one, and its codes are the nearest") {
  for (const bool is_weighted : {false, true})
    for (const Codes kind : {Codes::e4m3, Codes::u8, Codes::u4})
      for (const DType scale_type : {DType::f32, DType::bf16, DType::f16})
        for (const std::size_t count : {1, 7, 32, 128, 300}) {
          CAPTURE(kind);
          CAPTURE(scale_type);
          CAPTURE(count);
          const std::vector<double> all = codes_of(kind);
          std::vector<float> weights = random_weights(count, count);
          std::vector<float> codes(count), importance(count, 1.0f);
          // And of all sizes, down to codes that are subnormal.
          for (std::size_t i = 0; is_weighted && i < count; ++i) {
            importance[i] = i % 5 == 0 ? 30.0f : 0.1f;
            weights[i] = std::ldexp(weights[i], -static_cast<int>(i % 16));
          }
          const RoundedGroup made = round_group(kind, scale_type, weights, importance, codes);
          CHECK(made.scale == round_to(scale_type, made.scale));
          double error = 0, largest = 0;
          for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(std::ranges::find(all, double{codes[i]}) != all.end());
            error += std::pow(weights[i] - codes[i] * made.scale, 2) * importance[i];
            largest = std::max(largest, std::fabs(double{weights[i]}));
          }
          CHECK(made.squared_error == doctest::Approx(error));
          CHECK(error <= least_error(weights, importance, made.scale, all) * (1 + 1e-5) + 1e-18);
          double best = INFINITY;
          // The end of the range is half a code beyond the largest one.
          const double plain = largest / (all.back() + (is_whole(kind) ? 0.5 : 0));
          for (int i = 300; i <= 1200; ++i)
            best = std::min(best, least_error(weights, importance,
                                              round_to(scale_type, plain * i / 1000), all));
          if (count >= 32) CHECK(error <= 1.3 * best);
          CHECK(error <=
                least_error(weights, importance, round_to(scale_type, plain), all) * (1 + 1e-5));
        }
}

TEST_CASE("groups of zeros, of tiny weights and with one large weight") {
  for (const Codes kind : {Codes::e4m3, Codes::u8, Codes::u4}) {
    CAPTURE(kind);
    std::vector<float> weights(16, 0.0f), codes(16, 3.0f);
    const std::vector<float> alike(16, 1.0f);
    RoundedGroup made = round_group(kind, DType::bf16, weights, alike, codes);
    CHECK(made.scale > 0);
    CHECK(made.squared_error == 0);
    for (const float code : codes) CHECK(code == 0);
    // Smaller than any scale.
    for (float& weight : weights) weight = 1e-45f;
    made = round_group(kind, DType::f16, weights, alike, codes);
    CHECK(made.scale > 0);
    CHECK(std::isfinite(made.scale));
    CHECK(made.squared_error <= 4e-89);
    weights[5] = 1e4f;
    made = round_group(kind, DType::f16, weights, alike, codes);
    CHECK(codes[5] * made.scale == doctest::Approx(1e4).epsilon(1e-3));
  }
}

TEST_CASE("a written safetensors file is what was given, aligned") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x.safetensors";
  const std::map<std::string, std::string> data = {
      {"a.byte", "123"}, {"b.half", "abcdef"}, {"c.long", "ABCDEFGHIJKLMNOP"}, {"d.none", ""}};
  SafetensorsWriter writer(path, {{"a.byte", DType::u8, {3}},
                                  {"b.half", DType::bf16, {3, 1}},
                                  {"c.long", DType::i64, {2}},
                                  {"d.none", DType::f32, {0, 4}}});
  for (const char* name : {"c.long", "a.byte", "d.none", "b.half"})
    writer.write(name, std::as_bytes(std::span(data.at(name))));
  writer.finish();
  const SafetensorsFile file(path);
  REQUIRE(file.entries().size() == data.size());
  for (const auto& [name, bytes] : data) {
    CAPTURE(name);
    const SafetensorsEntry& entry = *file.find(name);
    CHECK(bytes_of_file(file.view(entry)) == bytes);
    CHECK(entry.begin % bytes_of(*entry.dtype) == 0);
  }
  CHECK(file.find("b.half")->shape == std::vector<std::int64_t>{3, 1});
  const fs::path nowhere = folder.path() / "none/x.safetensors";
  CHECK(test::error_of(Fault::job_failed, [&] {
          SafetensorsWriter(nowhere, {});
        }).find(nowhere.string()) == 0);
}

TEST_CASE("a quantised model means what its errors say") {
  const TemporaryFolder folder;
  write_model(folder.path() / "model");
  const Model model = capture_native(folder.path() / "model");
  ModelWeights before(model);
  for (const char* wanted : {"fp8", "int8", "int4:16"}) {
    CAPTURE(wanted);
    const fs::path to = folder.path() / wanted;
    fs::create_directory(to);
    const Quantized made =
        quantize(model, {.weights = parse_weights(wanted, "--weights"), .head = true}, to);
    CHECK(made.layers.size() == 8);
    std::map<std::string, double> errors;
    for (const QuantizedLayer& layer : made.layers) errors[layer.module] = layer.plain.of_errors;
    const Model again = capture_native(to);
    ModelWeights after(again);
    REQUIRE(again.graph.nodes.size() == model.graph.nodes.size());
    for (std::size_t i = 0; i < model.graph.nodes.size(); ++i) {
      const Node &old = model.graph.nodes[i], &node = again.graph.nodes[i];
      if (node.op != Op::weight || node.type.shape.size() != 2) continue;
      const std::vector<double> is = elements_of(after, node), was = elements_of(before, old);
      double error = 0;
      for (std::size_t k = 0; k < is.size(); ++k) error += std::pow(is[k] - was[k], 2);
      const std::string key = old.text("key");
      const auto layer = errors.find(key.substr(0, key.size() - std::string(".weight").size()));
      CHECK(error == doctest::Approx(layer == errors.end() ? 0 : layer->second));
    }
  }
}

TEST_CASE("a tensor in the way of a new one is refused") {
  const TemporaryFolder folder;
  write_model(folder.path() / "model", {"model.layers.0.mlp.up_proj.weight_scale"});
  const Model model = capture_native(folder.path() / "model");
  CHECK_BAD_INPUT(quantize(model, {.weights = parse_weights("fp8", "--weights")}, folder.path()),
                  "\"model.layers.0.mlp.up_proj.weight_scale\"", "is to be written");
}

TEST_CASE("what a text shows of a model's linears, whatever it is cut into") {
  const TemporaryFolder folder;
  write_model(folder.path() / "model");
  const Model model = capture_native(folder.path() / "model");
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 70; ++i) ids.push_back(i % 40);  // more than a step of the reference
  const Importance whole = mean_squares(model, {ids});
  CHECK(whole.size() == 8);
  const std::vector<float>& of_q = whole.at("model.layers.0.self_attn.q_proj.weight");
  CHECK(of_q.size() == 32);
  CHECK(of_q == whole.at("model.layers.0.self_attn.v_proj.weight"));
  CHECK(whole.at("model.layers.0.mlp.down_proj.weight").size() == 48);
  // The first layer's input depends on its token alone.
  const Importance cut =
      mean_squares(model, {{ids.begin(), ids.begin() + 9}, {ids.begin() + 9, ids.end()}});
  const std::vector<float>& again = cut.at("model.layers.0.self_attn.q_proj.weight");
  for (std::size_t i = 0; i < of_q.size(); ++i) CHECK(of_q[i] == doctest::Approx(again[i]));
  CHECK(whole.at("lm_head.weight") != cut.at("lm_head.weight"));
}
