#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "capture/native.h"
#include "ir/graph_text.h"
#include "ir/verify.h"
#include "tests/tools/source_folder.h"

using namespace ac;
namespace fs = std::filesystem;

namespace {

const fs::path kData = test_data();

std::int64_t elements(const Node& weight) { return product(weight.type.shape).constant(); }

std::int64_t parameters(const Graph& graph) {
  std::int64_t total = 0;
  for (const Node& node : graph.nodes)
    if (node.op == Op::weight) total += elements(node);
  return total;
}

// What a decode step streams: every weight that something other than a gather uses.
std::int64_t bytes_of_step(const Graph& graph) {
  std::set<NodeId> used;
  for (const Node& node : graph.nodes)
    if (node.op != Op::embedding) used.insert(node.inputs.begin(), node.inputs.end());
  std::int64_t total = 0;
  for (const NodeId id : used)
    if (graph[id].op == Op::weight)
      total += elements(graph[id]) * static_cast<std::int64_t>(bytes_of(graph.type(id).dtype));
  return total;
}

Graph build(const Json& config, const char* name = "test") {
  return build_decoder(parse_config(config, "config.json"), name);
}

std::vector<const Node*> nodes_of(const Graph& graph, Op op) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes)
    if (node.op == op) found.push_back(&node);
  return found;
}

}  // namespace

TEST_CASE("published geometries: parameters, bytes a step, time to capture") {
  struct Case {
    const char* name;
    std::int64_t parameters;
    double step_gigabytes;  // in 16 bits, as measured by others; 0: unknown
  };
  for (const Case& model :
       {Case{"llama-3.2-1b", 1'235'814'400, 2.471}, Case{"llama-3.2-3b", 3'212'749'824, 6.425},
        Case{"llama-3.1-70b", 70'553'706'496, 0}, Case{"qwen3-1.7b", 1'720'574'976, 3.441},
        Case{"qwen3-4b", 4'022'468'096, 8.045}, Case{"qwen3-8b", 8'190'735'360, 15.14},
        Case{"mistral-7b-v0.1", 7'241'732'096, 0}, Case{"qwen2.5-7b", 7'615'616'512, 0},
        Case{"smollm3-3b", 3'075'098'624, 0}, Case{"gemma-3-1b", 999'885'952, 0}}) {
    CAPTURE(std::string(model.name));
    const auto start = std::chrono::steady_clock::now();
    const DecoderConfig config =
        read_config(kData / "configs" / (std::string(model.name) + ".json"));
    const Graph graph = build_decoder(config, model.name);
    verify(graph, model.name);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    CHECK(elapsed.count() < 1.0);
    CHECK(parameters(graph) == model.parameters);
    if (model.step_gigabytes > 0)
      CHECK(static_cast<double>(bytes_of_step(graph)) ==
            doctest::Approx(model.step_gigabytes * 1e9).epsilon(0.0005));
    const std::string text = print(graph);
    CHECK(print(parse_graph(text, model.name)) == text);
  }
}

TEST_CASE("weights and windows are those of the model that transformers builds") {
  const Json cases = read_json(kData / "native_cases.json");
  CHECK(cases.size() > 20);
  for (const Json& recorded : cases) {
    CAPTURE(recorded["config"].dump());
    const Graph graph = build(recorded["config"]);
    verify(graph, "test");
    std::map<std::string, std::string> expected, got;
    for (const auto& [key, shape] : recorded["weights"].items()) {
      Shape dims;
      for (const Json& size : shape) dims.push_back(size.get<std::int64_t>());
      expected[key] = to_string(dims);
    }
    const auto dtype = dtype_from_torch_name(recorded["dtype"].get<std::string>());
    for (const Node* weight : nodes_of(graph, Op::weight)) {
      CHECK(got.emplace(weight->text("key"), to_string(weight->type.shape)).second);
      CHECK(weight->type.dtype == dtype);
      CHECK(weight->text("store") == "checkpoint");
    }
    CHECK(got == expected);
    std::vector<std::int64_t> windows;
    for (const Node* node : nodes_of(graph, Op::attention))
      windows.push_back(node->integer("window"));
    CHECK(windows == recorded["windows"].get<std::vector<std::int64_t>>());
  }
}

TEST_CASE("the graph is in normal form") {
  const Graph graph = build(read_json(kData / "configs/llama-3.2-1b.json"));
  CHECK(nodes_of(graph, Op::positions).size() == 1);
  CHECK(nodes_of(graph, Op::constant).size() == 1);
  CHECK(nodes_of(graph, Op::rope).size() == 32);
  REQUIRE(graph.outputs.size() == 1);
  CHECK(graph.outputs[0].name == "logits");
  const Dim tokens(Symbol::S);
  CHECK(graph.type(graph.outputs[0].node) == TensorType{DType::bf16, {tokens, 128256}});
  // Tied: one node, used twice.
  const Node& head = graph[graph.outputs[0].node];
  CHECK(graph[head.inputs[1]].text("key") == "model.embed_tokens.weight");
  CHECK(head.module == "lm_head");
  for (const Node& node : graph.nodes)
    if (node.op != Op::weight && node.op != Op::constant) {
      CHECK(node.type.shape[0] == tokens);
      for (std::size_t i = 1; i < node.type.shape.size(); ++i)
        CHECK(node.type.shape[i].is_constant());
    }
  // Every key is the path of its module.
  for (const Node* weight : nodes_of(graph, Op::weight)) {
    const std::string key = weight->text("key");
    CHECK(key.substr(0, key.rfind('.')) == weight->module);
  }
}

TEST_CASE("every activation function becomes its op") {
  Json config = read_json(kData / "native_cases.json")[0]["config"];
  for (const auto& [name, op, tanh] :
       {std::tuple{"silu", Op::silu, false}, std::tuple{"gelu", Op::gelu, false},
        std::tuple{"gelu_new", Op::gelu, true}, std::tuple{"gelu_pytorch_tanh", Op::gelu, true},
        std::tuple{"relu", Op::relu, false}}) {
    CAPTURE(std::string(name));
    config["hidden_act"] = name;
    const Graph graph = build(config);
    const auto nodes = nodes_of(graph, op);
    REQUIRE(nodes.size() == 3);
    CHECK(nodes[0]->module == "model.layers.0.mlp.act_fn");
    if (op == Op::gelu) CHECK(nodes[0]->flag("tanh") == tanh);
  }
}

// AC_UPDATE_GOLDEN=1 rewrites the file.
TEST_CASE("the printed graph of a one-layer Qwen3") {
  const Json config{{"architectures", {"Qwen3ForCausalLM"}},
                    {"model_type", "qwen3"},
                    {"hidden_size", 32},
                    {"intermediate_size", 48},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"head_dim", 16},
                    {"vocab_size", 40},
                    {"rope_theta", 1000000},
                    {"use_sliding_window", true},
                    {"sliding_window", 8},
                    {"max_window_layers", 0},
                    {"torch_dtype", "bfloat16"}};
  const std::string text = print(build(config, "qwen3"));
  const fs::path golden = kData / "golden/native_qwen3.txt";
  const char* update = std::getenv("AC_UPDATE_GOLDEN");
  if (update && std::string(update) == "1") write_file_atomically(golden, text);
  CHECK(read_file(golden, 1 << 20) == text);
}

TEST_CASE("capture names the graph and its checkpoint after the directory") {
  const fs::path folder =
      fs::temp_directory_path() / ("ac_test_native_" + std::to_string(getpid())) / "my model";
  fs::create_directories(folder);
  fs::copy_file(kData / "configs/qwen3-1.7b.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
  for (const fs::path& spelling : {folder, folder / "", folder / ".", folder / "../my model"}) {
    const Model model = capture_native(spelling);
    CHECK(model.graph.name == "my model");
    CHECK(model.architecture == "Qwen3ForCausalLM");
    CHECK(model.stores.at("checkpoint") == spelling);
    CHECK(model.stores.size() == 1);
  }
  fs::remove(folder / "config.json");
  CHECK_THROWS_WITH_AS(
      capture_native(folder),
      ((folder / "config.json").string() + ": cannot open: No such file or directory").c_str(),
      Error);
  fs::remove_all(folder.parent_path());
}
