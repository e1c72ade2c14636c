// A small capture, read as it is and spoilt in every way that a file can be.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "capture/exported.h"
#include "ir/graph_text.h"

using namespace ac;

namespace {

Json small_capture() {
  return Json::parse(R"({
    "format": "agentcompile.capture", "format_version": 1,
    "producer": {"torch": "2.13.0", "transformers": null, "python": "3.11"},
    "model": {"name": "small", "architecture": "SmallDecoder", "dtype": "float32",
              "config_sha256": null, "vocab_size": 20},
    "symbols": {"S": {"min": 1, "max": 64}},
    "roots": {"checkpoint": "/models/small", "capture": "."},
    "inputs": [
      {"name": "ids", "kind": "ids", "dtype": "int64", "shape": [1, "S"]},
      {"name": "places", "kind": "positions", "dtype": "int64", "shape": [1, "S"]}],
    "parameters": [
      {"name": "table", "path": "embed.weight", "aliases": ["head.weight"], "dtype": "float32",
       "shape": [20, 8], "root": "checkpoint", "file": "model.safetensors", "key": "embed.weight"},
      {"name": "unused", "path": "unused.weight", "aliases": [], "dtype": "float32",
       "shape": [3], "root": "checkpoint", "file": null, "key": "unused.weight"}],
    "constants": [
      {"name": "scale", "path": "block.scale", "dtype": "float32", "shape": [2, 2],
       "data": [1, -2.5, "inf", "nan"]},
      {"name": "mask", "path": "block.mask", "dtype": "bool", "shape": [4, 4], "tril": 0},
      {"name": "ones", "path": "ones", "dtype": "float16", "shape": [5, 1], "fill": 1},
      {"name": "stored", "path": "block.big", "dtype": "float32", "shape": [64, 8],
       "root": "capture", "file": "small.safetensors", "key": "block.big"}],
    "nodes": [
      {"name": "x", "op": "aten.embedding.default", "module": "embed",
       "args": {"weight": {"ref": "table"}, "indices": {"ref": "ids"}, "padding_idx": -1,
                "scale_grad_by_freq": false, "sparse": false},
       "dtype": "float32", "shape": [1, "S", 8]},
      {"name": "where", "op": "aten.embedding.default", "module": "block",
       "args": {"weight": {"ref": "stored"}, "indices": {"ref": "places"}, "padding_idx": -1,
                "scale_grad_by_freq": false, "sparse": false},
       "dtype": "float32", "shape": [1, "S", 8]},
      {"name": "sum", "op": "aten.add.Tensor", "module": "block",
       "args": {"self": {"ref": "x"}, "other": {"ref": "where"}, "alpha": 1},
       "dtype": "float32", "shape": [1, "S", 8]},
      {"name": "parts", "op": "aten.split_with_sizes.default", "module": "block",
       "args": {"self": {"ref": "sum"}, "split_sizes": [6, 2], "dim": 2},
       "dtype": ["float32", "float32"], "shape": [[1, "S", 6], [1, "S", 2]]},
      {"name": "turned", "op": "aten.linear.default", "module": "block",
       "args": {"input": {"ref": "parts", "index": 1}, "weight": {"ref": "scale"}, "bias": null},
       "dtype": "float32", "shape": [1, "S", 2]},
      {"name": "flat", "op": "aten.view.default", "module": "block",
       "args": {"self": {"ref": "turned"}, "size": [{"dim": ["mul", 2, "S"]}]},
       "dtype": "float32", "shape": [["mul", "S", 2]]},
      {"name": "logits", "op": "aten.linear.default", "module": "head",
       "args": {"input": {"ref": "sum"}, "weight": {"ref": "table"}, "bias": null},
       "dtype": "float32", "shape": [1, "S", 20]}],
    "outputs": [{"name": "logits", "ref": "logits"}],
    "golden": []})");
}

Model parsed(const Json& file) { return parse_exported(file.dump(), "folder/small.json"); }

std::string error_of(const std::string& text) {
  try {
    parse_exported(text, "folder/small.json");
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::bad_input);
    return error.what();
  }
  return "no error";
}

std::string error_after(const std::function<void(Json&)>& spoil) {
  Json file = small_capture();
  spoil(file);
  return error_of(file.dump());
}

#define CHECK_ERROR(fragment, ...)                                         \
  do {                                                                     \
    const std::string message = error_after([](Json& f) { __VA_ARGS__; }); \
    CAPTURE(message);                                                      \
    CHECK(message.starts_with("folder/small.json: "));                     \
    CHECK(message.find(fragment) != std::string::npos);                    \
  } while (false)

}  // namespace

TEST_CASE("a capture becomes a graph") {
  const Model model = parsed(small_capture());
  CHECK(model.architecture == "SmallDecoder");
  CHECK(model.stores ==
        std::map<std::string, std::filesystem::path>{{"checkpoint", "/models/small"},
                                                     {"capture", "folder/small.safetensors"}});
  CHECK(print(model.graph) == R"(graph "small" max_tokens=64 {
  %0 = input {name="ids"} : i64[S]
  %1 = reshape(%0) {shape=[1, S]} : i64[1, S]
  %2 = positions : i64[S]
  %3 = reshape(%2) {shape=[1, S]} : i64[1, S]
  %4 = weight {key="embed.weight", store="checkpoint"} : f32[20, 8] @ "embed"
  %5 = embedding(%4, %1) : f32[1, S, 8] @ "embed"
  %6 = weight {key="block.big", store="capture"} : f32[64, 8] @ "block"
  %7 = embedding(%6, %3) : f32[1, S, 8] @ "block"
  %8 = add(%5, %7) : f32[1, S, 8] @ "block"
  %9 = slice(%8) {axis=2, start=0, end=6, step=1} : f32[1, S, 6] @ "block"
  %10 = slice(%8) {axis=2, start=6, end=8, step=1} : f32[1, S, 2] @ "block"
  %11 = constant {data=[1.0, -2.5, inf, nan]} : f32[2, 2] @ "block"
  %12 = linear(%10, %11) : f32[1, S, 2] @ "block"
  %13 = reshape(%12) {shape=[2*S]} : f32[2*S] @ "block"
  %14 = linear(%8, %4) : f32[1, S, 20] @ "head"
  %15 = reshape(%14) {shape=[S, 20]} : f32[S, 20]
  return %15 as "logits"
}
)");
}

TEST_CASE("ids without a batch axis, in int32, and no positions") {
  Json file = small_capture();
  file["inputs"] = Json::parse(
      R"([{"name": "ids", "kind": "ids", "dtype": "int32", "shape": ["S"]},
          {"name": "places", "kind": "positions", "dtype": "int32", "shape": ["S"]}])");
  for (const char* name : {"x", "where", "sum", "parts", "turned", "logits"})
    for (Json& node : file["nodes"])
      if (node["name"] == name) {
        if (node["dtype"].is_array()) {
          for (Json& shape : node["shape"]) shape.erase(shape.begin());
          node["args"]["dim"] = 1;
        } else {
          node["shape"].erase(node["shape"].begin());
        }
      }
  CHECK(parsed(file).graph.type(parsed(file).graph.outputs[0].node).shape == Shape{Symbol::S, 20});
}

TEST_CASE("a capture of another kind or version is refused") {
  CHECK_ERROR("\"format\" is not \"agentcompile.capture\"", f["format"] = "onnx");
  CHECK_ERROR("format version 2, but this program reads version 1", f["format_version"] = 2);
  CHECK_ERROR("format version 1.0, but", f["format_version"] = 1.0);
  CHECK_ERROR("\"format_version\" is missing", f.erase("format_version"));
  CHECK_ERROR("is not an object", f = Json::array());
  for (const char* key :
       {"model", "symbols", "roots", "inputs", "parameters", "constants", "nodes", "outputs"}) {
    const auto fragment = fmt::format("small.json: \"{}\" is missing", key);
    CHECK(error_after([&](Json& f) { f.erase(key); }).find(fragment) != std::string::npos);
    CHECK(error_after([&](Json& f) { f[key] = 3; }) != "no error");
  }
}

TEST_CASE("not even JSON") {
  CHECK(error_of("").find("not valid JSON") != std::string::npos);
  CHECK(error_of(std::string(1000000, '[')).find("nested deeper") != std::string::npos);
  CHECK(error_of(R"({"format": 1, "format": 2})").find("duplicate key") != std::string::npos);
  const std::string text = small_capture().dump();
  for (std::size_t size = 0; size < text.size(); size += 7)
    CHECK(error_of(text.substr(0, size)) != "no error");
}

TEST_CASE("symbols") {
  CHECK_ERROR("exactly one symbol, \"S\"", f["symbols"] = Json::object());
  CHECK_ERROR("exactly one symbol, \"S\"", f["symbols"]["T"] = f["symbols"]["S"]);
  CHECK_ERROR("\"max\" is not an integer", f["symbols"]["S"]["max"] = 64.0);
  CHECK_ERROR("\"min\" is missing", f["symbols"]["S"].erase("min"));
  CHECK_ERROR("S from 10 to 9", f["symbols"]["S"] = Json({{"min", 10}, {"max", 9}}));
  CHECK_ERROR("S from -1 to 9", f["symbols"]["S"] = Json({{"min", -1}, {"max", 9}}));
  CHECK_ERROR("only right for at least 8 tokens", f["symbols"]["S"]["min"] = 8);
  CHECK_ERROR("S is at most 0", f["symbols"]["S"] = Json({{"min", 0}, {"max", 0}}));
}

TEST_CASE("the longest sequence is part of the graph") {
  CHECK(parsed(small_capture()).graph.limit.tokens == 64);
  Json file = small_capture();
  file["symbols"]["S"]["max"] = (std::int64_t{1} << 62) + 5;  // any
  CHECK(parsed(file).graph.limit.tokens == kMostTokens);
}

TEST_CASE("messages name PyTorch's op and the line of the model") {
  Json file = small_capture();
  file["nodes"][2]["source"] = "model.py:31";
  const Graph graph = parsed(file).graph;
  CHECK(describe(graph, 8) == "add at block (aten.add.Tensor, model.py:31)");
  CHECK_ERROR("(aten.foo.default in module block, model.py:31): this op is not known",
              f["nodes"][2]["source"] = "model.py:31";
              f["nodes"][2]["op"] = "aten.foo.default");
  CHECK_ERROR("\"source\" is not a string", f["nodes"][2]["source"] = 31);
}

TEST_CASE("constants that count, and triangles of two values") {
  Json file = small_capture();
  Json& scale = file["constants"][0];
  scale.erase("data");
  scale["triangle"] = {{"diagonal", 0}, {"below", 0}, {"above", "-inf"}};
  const std::string text = print(parsed(file).graph);
  CHECK(text.find("tril") != text.npos);
  CHECK(text.find("where") != text.npos);
  CHECK_ERROR("\"above\" is missing", f["constants"][0].erase("data");
              f["constants"][0]["triangle"] = Json({{"diagonal", 0}, {"below", 0}}));
  CHECK_ERROR("exactly one of", f["constants"][0]["range"] = Json({0, 1}));
  CHECK_ERROR("a range along several axes", f["constants"][0].erase("data");
              f["constants"][0]["range"] = Json({0, 1}));
  CHECK_ERROR("is not [start, step]", f["constants"][0].erase("data");
              f["constants"][0]["shape"] = Json({4});
              f["constants"][0]["range"] = Json::array({0}));
  CHECK_ERROR("a range of 4 elements", f["constants"][0].erase("data");
              f["constants"][0]["shape"] = Json({4});
              f["constants"][0]["range"] = Json({0, std::int64_t{1} << 62}));
  CHECK_ERROR("is not a number of float16", f["constants"][0].erase("data");
              f["constants"][0]["dtype"] = "float16"; f["constants"][0]["shape"] = Json({4});
              f["constants"][0]["range"] = Json({4095, 1}));
}

TEST_CASE("inputs and outputs") {
  CHECK_ERROR("0 of ids and 1 of positions", f["inputs"].erase(0));
  CHECK_ERROR("2 of ids and 0 of positions", f["inputs"][1]["kind"] = "ids");
  CHECK_ERROR("an input of kind \"mask\"", f["inputs"][1]["kind"] = "mask");
  CHECK_ERROR("inputs[0] \"ids\": is i64[S, 1], expected integers of shape [1, S]",
              f["inputs"][0]["shape"] = Json({"S", 1}));
  CHECK_ERROR("expected integers", f["inputs"][0]["dtype"] = "float32");
  CHECK_ERROR("0 outputs", f["outputs"] = Json::array());
  CHECK_ERROR("is named \"hidden\"", f["outputs"][0]["name"] = "hidden");
  CHECK_ERROR("the output \"logits\": refers to \"lost\"", f["outputs"][0]["ref"] = "lost");
  CHECK_ERROR("expected floats of shape [1, S, vocabulary]", f["outputs"][0]["ref"] = "flat");
  CHECK_ERROR("several results, without an index", f["outputs"][0]["ref"] = "parts");
}

TEST_CASE("parameters") {
  CHECK_ERROR("parameters[0] \"table\": \"roots\" has no \"elsewhere\"",
              f["parameters"][0]["root"] = "elsewhere");
  CHECK_ERROR("leads out of its folder", f["parameters"][0]["file"] = "../x.safetensors");
  CHECK_ERROR("leads out of its folder", f["parameters"][0]["file"] = "a/../../x.safetensors");
  CHECK_ERROR("leads out of its folder", f["parameters"][0]["file"] = "/etc/x.safetensors");
  CHECK_ERROR("leads out of its folder", f["parameters"][0]["file"] = "..\\x.safetensors");
  CHECK_ERROR("leads out of its folder", f["parameters"][0]["file"] = std::string("a\0b", 3));
  CHECK_ERROR("leads out of its folder", f["parameters"][0]["file"] = "");
  CHECK_ERROR("\"file\" is not a string", f["constants"][3]["file"] = nullptr);
  CHECK_ERROR("\"key\" is missing", f["parameters"][0].erase("key"));
  CHECK_ERROR("elements of type \"float64\" are not supported",
              f["parameters"][0]["dtype"] = "float64");
  CHECK_ERROR("a stored tensor of shape [S, 8]", f["parameters"][0]["shape"][0] = "S");
  CHECK_ERROR("a stored tensor of shape [0, 8]", f["parameters"][0]["shape"][0] = 0);
  CHECK_ERROR("a size of -20", f["parameters"][0]["shape"][0] = -20);
  CHECK_ERROR("20.0 is not a size", f["parameters"][0]["shape"][0] = 20.0);
  CHECK_ERROR("9 axes, more than 8", f["parameters"][0]["shape"] = Json(std::vector<int>(9, 1)));
  CHECK_ERROR("overflows 64 bits",
              f["parameters"][0]["shape"] = Json(std::vector<int>(3, 2000000000)));
  CHECK_ERROR("overflows 64 bits", f["parameters"][0]["shape"][0] = 9223372036854775808u);
  CHECK_ERROR("\"linear\" is neither true nor false", f["parameters"][0]["linear"] = 1);
  CHECK_ERROR("\"unused\" is no weight of a linear", f["parameters"][1]["linear"] = true);
  CHECK_ERROR(
      "\"table\" is no weight of a linear",
      f["parameters"][0].update(Json({{"linear", true}, {"root", "capture"}, {"file", "b"}})));
  CHECK_ERROR("\"table\" is no weight of a linear",
              f["parameters"][0].update(Json({{"linear", true}, {"key", "embed"}})));
  CHECK_ERROR("/models/small/config.json", f["parameters"][0]["linear"] = true);
  CHECK_ERROR("weights in the root \"other\"",
              (f["roots"]["other"] = ".", f["parameters"][0]["root"] = "other"));
  CHECK_ERROR("are in both",
              f["parameters"][0].update(Json({{"root", "capture"}, {"file", "b.safetensors"}})));
}

TEST_CASE("constants") {
  CHECK_ERROR("exactly one of", f["constants"][0].erase("data"));
  CHECK_ERROR("exactly one of", f["constants"][0]["fill"] = 1);
  CHECK_ERROR("4 elements of data for the shape [2, 3]", f["constants"][0]["shape"][1] = 3);
  CHECK_ERROR("more than 67108864", f["constants"][2]["shape"] = Json({8193, 8193}));
  CHECK_ERROR("overflows 64 bits",
              f["constants"][2]["shape"] = Json(std::vector<int>(8, 2000000000)));
  CHECK_ERROR("the element \"one\" is not a number", f["constants"][0]["data"][0] = "one");
  CHECK_ERROR("the element [] is not a number", f["constants"][2]["fill"] = Json::array());
  CHECK_ERROR("1.5 is not an integer, but the elements are int64",
              f["constants"][0].update(Json({{"dtype", "int64"}, {"data", {1, 1.5, 1, 1}}})));
  CHECK_ERROR("2147483648 is out of range for int32",
              f["constants"][2].update(Json({{"dtype", "int32"}, {"fill", 2147483648}})));
  CHECK_ERROR("2 is out of range for bool",
              f["constants"][2].update(Json({{"dtype", "bool"}, {"fill", 2}})));
  CHECK_ERROR("a triangle needs two axes", f["constants"][1]["shape"] = Json({16}));
  CHECK_ERROR("\"tril\" is not an integer", f["constants"][1]["tril"] = 0.5);
}

TEST_CASE("names") {
  CHECK_ERROR("two things are named \"x\"", f["nodes"][1]["name"] = "x");
  CHECK_ERROR("two things are named \"table\"", f["nodes"][1]["name"] = "table");
  CHECK_ERROR("\"name\" is empty", f["nodes"][1]["name"] = "");
  CHECK_ERROR("nodes[1]: \"name\" is not a string", f["nodes"][1]["name"] = 7);
  CHECK_ERROR("node \"sum\" (aten.add.Tensor in module block): refers to \"lost\", which nothing",
              f["nodes"][2]["args"]["other"]["ref"] = "lost");
  CHECK_ERROR(
      "node \"sum\" (aten.add.Tensor in module block): refers to \"sum\", which comes later",
      f["nodes"][2]["args"]["other"]["ref"] = "sum");
  CHECK_ERROR("node \"x\" (aten.embedding.default in module embed): refers to \"sum\", which comes",
              f["nodes"][0]["args"]["indices"]["ref"] = "sum");
  CHECK_ERROR("refers to \"sum\", which comes later", std::swap(f["nodes"][2], f["nodes"][3]));
  CHECK_ERROR("to no name", f["nodes"][2]["args"]["other"]["ref"] = 3);
}

TEST_CASE("results by index") {
  CHECK_ERROR("refers to result 2 of \"parts\", which has 2",
              f["nodes"][4]["args"]["input"]["index"] = 2);
  CHECK_ERROR("refers to result -1", f["nodes"][4]["args"]["input"]["index"] = -1);
  CHECK_ERROR("refers to result 1.0", f["nodes"][4]["args"]["input"]["index"] = 1.0);
  CHECK_ERROR("without an index", f["nodes"][4]["args"]["input"].erase("index"));
  CHECK_ERROR("refers to result 1 of \"x\", which has 1",
              f["nodes"][2]["args"]["self"]["index"] = 1);
  CHECK_ERROR("has 2 results, but 1 are declared",
              f["nodes"][3].update(Json(
                  {{"dtype", Json::array({"float32"})}, {"shape", Json::array({{1, "S", 6}})}})));
  CHECK_ERROR("results of 2 dtypes and 1 shapes", f["nodes"][3]["shape"].erase(1));
}

TEST_CASE("nodes") {
  const std::string sum = "node \"sum\" (aten.add.Tensor in module block): ";
  CHECK_ERROR("node \"sum\" (aten.fft.default in module block): this op is not known",
              f["nodes"][2]["op"] = "aten.fft.default");
  CHECK_ERROR("node \"sum\" (aten.add_.Tensor in module block): this op is not known",
              f["nodes"][2]["op"] = "aten.add_.Tensor");
  CHECK_ERROR(sum + "is declared f32[1, S, 9], but its arguments make it f32[1, S, 8]",
              f["nodes"][2]["shape"][2] = 9);
  CHECK_ERROR(sum + "is declared f16[1, S, 8], but", f["nodes"][2]["dtype"] = "float16");
  CHECK_ERROR("nodes[2] \"sum\": 8.0 is not a size", f["nodes"][2]["shape"][2] = 8.0);
  CHECK_ERROR("9 axes, more than 8", f["nodes"][2]["shape"] = Json(std::vector<int>(9, 1)));
  CHECK_ERROR("a size of S - 5", f["nodes"][2]["shape"][2] = Json({"add", "S", -5}));
  CHECK_ERROR("\"args\" is not an object", f["nodes"][2]["args"] = Json::array());
  CHECK_ERROR(sum + "argument \"alpha\" is missing", f["nodes"][2]["args"].erase("alpha"));
  CHECK_ERROR(sum + "has no argument \"out\"", f["nodes"][2]["args"]["out"] = nullptr);
  CHECK_ERROR(sum + "argument \"self\" is [3], expected operand",
              f["nodes"][2]["args"]["self"] = Json::array({3}));
  CHECK_ERROR("argument \"split_sizes\" is [6.0,2], expected ints",
              f["nodes"][3]["args"]["split_sizes"][0] = 6.0);
  CHECK_ERROR("argument \"dim\" is 2.0, expected int", f["nodes"][3]["args"]["dim"] = 2.0);
  CHECK_ERROR("axis 3 of a tensor of 3 axes", f["nodes"][3]["args"]["dim"] = 3);
  CHECK_ERROR("axis -4 of a tensor of 3 axes", f["nodes"][3]["args"]["dim"] = -4);
  CHECK_ERROR("splits 8 into [6, 3]", f["nodes"][3]["args"]["split_sizes"][1] = 3);
  CHECK_ERROR("\"op\" is missing", f["nodes"][2].erase("op"));
  CHECK_ERROR("input [1, S, 2] does not fit weight [2, 1]",
              f["constants"][0].update(Json({{"shape", {2, 1}}, {"data", {1, 2}}})));
}

TEST_CASE("sizes") {
  const auto with_size = [](const char* expression) {
    return error_after(
        [&](Json& f) { f["nodes"][5]["args"]["size"][0]["dim"] = Json::parse(expression); });
  };
  for (const char* same : {R"(["mul", "S", 2])", R"(["add", "S", "S"])",
                           R"(["floordiv", ["mul", 4, "S", "S"], ["mul", "S", 2]])",
                           R"(["add", ["mod", ["mul", 3, "S"], "S"], ["mul", 2, "S"]])",
                           R"(["min", ["mul", 2, "S"], ["mul", 3, "S"]])",
                           R"(["max", ["add", "S", 1], ["mul", 2, "S"]])",
                           R"(["mul", ["floordiv", 7, 3], ["mod", 7, 3], "S"])"}) {
    CAPTURE(same);
    CHECK(with_size(same) == "no error");
  }
  const auto fails = [&](const char* expression, const char* fragment) {
    const std::string message = with_size(expression);
    CAPTURE(message);
    CHECK(message.find("node \"flat\" (aten.view.default in module block): ") != std::string::npos);
    CHECK(message.find(fragment) != std::string::npos);
  };
  fails(R"(["mul", 3, "S"])", "cannot reshape [1, S, 2] to [3*S]");
  fails(R"(["floordiv", "S", 2])", "(S) // (2) does not divide exactly");
  fails(R"(["mod", "S", 2])", "does not divide exactly");
  fails(R"(["floordiv", 2, 0])", "divided by 0");
  fails(R"(["min", "S", 32])", "cannot tell which of the sizes S and 32 is smaller");
  fails(R"(["pow", "S", 2])", "\"pow\" is not an operation");
  fails(R"(["min", 1, 2, 3])", "takes two operands");
  fails(R"(["mul", 2])", "is not a size");
  fails(R"("T")", "is not a size");
  fails(R"({"dim": "S"})", "is not a size");
  fails(R"(["mul", 9223372036854775807, 2])", "overflows 64 bits");
  fails(R"(["mul", "S", "S", "S", "S", "S", "S", "S", "S", "S"])", "to the power of 9");
}

TEST_CASE("slices that depend on the number of tokens") {
  const auto with_table = [](int rows) {
    return error_after([&](Json& f) {
      f["parameters"][1]["shape"] = Json({rows, 2});
      f["nodes"].push_back(Json::parse(R"({"name": "cut", "op": "aten.slice.Tensor",
        "args": {"self": {"ref": "unused"}, "dim": 0, "start": 0, "end": {"dim": "S"}, "step": 1},
        "dtype": "float32", "shape": ["S", 2], "module": "block"})"));
    });
  };
  CHECK(with_table(64) == "no error");
  CHECK(with_table(63).find("cannot tell whether the bound S is within the size 63 for 1 to 64") !=
        std::string::npos);
}

TEST_CASE("what no decoder may do") {
  const auto attend = [](const char* argument, const Json& value) {
    return error_after([&](Json& f) {
      f["nodes"].push_back(Json::parse(R"({"name": "x4", "op": "aten.view.default",
        "args": {"self": {"ref": "x"}, "size": [1, 4, {"dim": "S"}, 2]},
        "dtype": "float32", "shape": [1, 4, "S", 2], "module": "block"})"));
      Json node = Json::parse(R"({"name": "attended", "op": "agentcompile.attention.default",
        "args": {"q": {"ref": "x4"}, "k": {"ref": "x4"}, "v": {"ref": "x4"}, "scale": 0.5,
                 "causal": true, "window": 0, "softcap": 0},
        "dtype": "float32", "shape": [1, 4, "S", 2], "module": "block"})");
      node["args"][argument] = value;
      f["nodes"].push_back(node);
    });
  };
  const auto says = [](const std::string& message, const char* fragment) {
    CAPTURE(message);
    CHECK(message.find("node \"attended\"") != std::string::npos);
    CHECK(message.find(fragment) != std::string::npos);
  };
  CHECK(attend("window", 3) == "no error");
  says(attend("causal", false), "is not causal");
  says(attend("window", -1), "window is -1");
  says(attend("softcap", -1.0), "softcap is -1");
  says(attend("scale", "wide"), "argument \"scale\" is \"wide\", expected number");
  says(attend("q", Json({{"ref", "x"}})), "q is [1, S, 8], expected [1, heads, S, d]");
  says(attend("k", Json({{"ref", "stored"}})), "k is [64, 8], expected [1, heads, S, d]");

  const auto node = [](const char* text) {
    return error_after([&](Json& f) { f["nodes"].push_back(Json::parse(text)); });
  };
  CHECK(node(R"({"name": "d", "op": "aten.dropout.default", "module": "",
                 "args": {"input": {"ref": "x"}, "p": 0.5, "train": true},
                 "dtype": "float32", "shape": [1, "S", 8]})")
            .find("node \"d\" (aten.dropout.default): draws random numbers") != std::string::npos);
  CHECK(node(R"({"name": "r", "op": "aten.arange.default", "module": "",
                 "args": {"end": 1000000000000, "dtype": null},
                 "dtype": "int64", "shape": [1000000000000]})")
            .find("a range of 1000000000000 elements") != std::string::npos);
  CHECK(node(R"({"name": "r", "op": "aten.arange.default", "module": "",
                 "args": {"end": {"dim": ["mul", 2, "S"]}, "dtype": null},
                 "dtype": "int64", "shape": [["mul", 2, "S"]]})")
            .find("the range from 0 to 2*S in steps of 1 is not one entry a token") !=
        std::string::npos);
  CHECK(node(R"({"name": "u", "op": "aten.unbind.int", "module": "",
                 "args": {"self": {"ref": "x"}, "dim": 1},
                 "dtype": ["float32"], "shape": [[1, 8]]})")
            .find("cannot split the size S") != std::string::npos);
  CHECK(node(R"({"name": "n", "op": "aten.native_layer_norm.default", "module": "",
                 "args": {"input": {"ref": "x"}, "normalized_shape": [{"dim": "S"}, 8],
                          "weight": null, "bias": null, "eps": 1e-5},
                 "dtype": ["float32", "float32", "float32"],
                 "shape": [[1, "S", 8], [1, 1, 1], [1, 1, 1]]})")
            .find("only the last axis") != std::string::npos);
}
