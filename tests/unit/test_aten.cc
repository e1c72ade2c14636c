// Each case of tests/data/aten_cases.json is one call of an ATen op with the result type that
// PyTorch gives (tests/python/test_aten_cases.py) and the ops of ours that it becomes.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "capture/aten.h"
#include "capture/exported.h"
#include "tests/tools/source_folder.h"

using namespace ac;

namespace {

const Json& cases() {
  static const Json file = read_json(test_data() / "aten_cases.json");
  return file;
}

// A capture that holds the stored tensors and the prelude of the cases, and `node`, if any, before
// the nodes that make the logits.
Json capture_with(const Json* node) {
  Json file = Json::parse(R"({
    "format": "agentcompile.capture", "format_version": 1,
    "model": {"name": "cases", "architecture": "Cases"},
    "symbols": {"S": {"min": 1, "max": 40}}, "roots": {"capture": "."},
    "inputs": [{"name": "ids", "kind": "ids", "dtype": "int64", "shape": [1, "S"]}],
    "parameters": [], "constants": [], "nodes": [],
    "outputs": [{"name": "logits", "ref": "logits"}]})");
  for (Json parameter : cases()["parameters"]) {
    parameter.update({{"path", parameter["name"]}, {"aliases", Json::array()}});
    parameter.update({{"root", "capture"}, {"file", "c.safetensors"}, {"key", parameter["name"]}});
    file["parameters"].push_back(parameter);
  }
  for (Json constant : cases()["constants"]) {
    constant["path"] = constant["name"];
    file["constants"].push_back(constant);
  }
  for (Json prelude : cases()["prelude"]) {
    prelude["module"] = "";
    file["nodes"].push_back(prelude);
  }
  if (node) file["nodes"].push_back(*node);
  file["nodes"].push_back(Json::parse(R"({"name": "logits", "op": "aten.linear.default",
    "args": {"input": {"ref": "x"}, "weight": {"ref": "head"}, "bias": null},
    "dtype": "float32", "shape": [1, "S", 20], "module": ""})"));
  return file;
}

Graph read(const Json& file) { return parse_exported(file.dump(), "cases.json").graph; }

// The ops that the case added, less the weights that it was first to use.
std::string added_ops(const Graph& with, const Graph& without) {
  std::size_t logits = 3;  // weight, linear, reshape at the end of both
  if (with.nodes.back().op != Op::reshape || with.nodes[with.nodes.size() - 2].op != Op::linear)
    return "no logits";
  if (with.nodes[with.nodes.size() - 3].op != Op::weight) logits = 2;
  std::string names;
  for (std::size_t i = without.nodes.size() - 3; i + logits < with.nodes.size(); ++i) {
    if (with.nodes[i].op == Op::weight) continue;
    if (!names.empty()) names += ' ';
    names += info(with.nodes[i].op).name;
  }
  return names;
}

}  // namespace

TEST_CASE("ATen ops become ours") {
  const Graph without = read(capture_with(nullptr));
  std::set<std::string> tried;
  for (const Json& entry : cases()["cases"]) {
    Json node = entry;
    node.update({{"name", "result"}, {"module", "some.module"}});
    CAPTURE(entry.dump());
    try {
      CHECK(Json(added_ops(read(capture_with(&node)), without)) == entry["nodes"]);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
    tried.insert(entry["op"].get<std::string>());
  }
  for (const AtenOp& op : aten_table()) CHECK_MESSAGE(tried.contains(op.name), op.name);
}

// Every argument is checked for every op: a missing one, an unknown one, one of the wrong type.
TEST_CASE("ATen ops with wrong arguments are refused") {
  const auto error_of = [&](const Json& node) -> std::string {
    try {
      read(capture_with(&node));
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::bad_input);
      return error.what();
    }
    return "no error";
  };
  std::set<std::string> tried;
  for (const Json& entry : cases()["cases"]) {
    if (!tried.insert(entry["op"].get<std::string>()).second) continue;
    Json node = entry;
    node.update({{"name", "result"}, {"module", "some.module"}});
    CAPTURE(entry.dump());
    const std::string where = "cases.json: node \"result\" (" + entry["op"].get<std::string>() +
                              " in module some.module): ";
    for (const auto& [name, value] : entry["args"].items()) {
      Json changed = node;
      changed["args"].erase(name);
      CHECK(error_of(changed) == where + "argument \"" + name + "\" is missing");
      changed = node;
      changed["args"][name] = Json::object();
      CHECK(error_of(changed).starts_with(where + "argument \"" + name + "\" is {}, expected "));
    }
    Json changed = node;
    changed["args"]["surplus"] = 1;
    CHECK(error_of(changed) == where + "has no argument \"surplus\"");
    changed = node;
    if (changed["shape"].empty() || !changed["shape"][0].is_array()) {
      changed["shape"].push_back(7);
      CHECK(error_of(changed).find("is declared ") != std::string::npos);
      changed = node;
      changed["dtype"] = changed["dtype"] == "int32" ? "bool" : "int32";
      // What is made from nothing has the dtype that is declared, when its arguments leave it open.
      if (entry["args"].dump().find("\"ref\"") != std::string::npos)
        CHECK(error_of(changed).find("is declared ") != std::string::npos);
    }
  }
}
