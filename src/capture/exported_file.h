// The capture format (docs/capture-format.md) as plain structs: what its JSON says, checked for
// form but not yet for meaning. exported.cc gives it the meaning.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "capture/model.h"
#include "capture/sizes.h"
#include "ir/graph.h"

namespace ac {

struct ExportedFile {
  struct Input {
    std::string name;
    bool is_positions;
    TensorType type;
  };
  struct Place {  // of a tensor in a safetensors file
    std::string root, file, key;
  };
  struct Parameter {
    std::string name, path;
    TensorType type;
    Place place;
    bool is_linear;  // of a checkpoint whose config says how weights of linears are stored
  };
  struct Fill {
    double value;
  };
  struct Tril {
    std::int64_t diagonal;
  };
  struct Range {  // start, start + step, ... along the one axis that is longer than 1
    std::int64_t start, step;
  };
  struct Triangle {  // `below` where column - row <= diagonal, else `above`
    std::int64_t diagonal;
    double below, above;
  };
  struct Constant {
    std::string name, path;
    TensorType type;
    std::variant<std::vector<double>, Fill, Tril, Range, Triangle, Place> content;
  };
  struct Node {
    std::string name, op, module;
    std::string source;  // file and line of the model; may be empty
    Json args;           // an object
    std::vector<TensorType> results;
    bool has_several;  // the results are a list, even if of one
  };

  std::string name, architecture;
  std::string checked;  // empty: the file does not say
  ScoresMeasured scores = ScoresMeasured::none;
  SymbolRange range;
  std::string longest_because;  // why the range ends; may be empty
  std::map<std::string, std::string> roots;
  std::vector<Input> inputs;
  std::vector<Parameter> parameters;
  std::vector<Constant> constants;
  std::vector<Node> nodes;
  Json output;  // the reference to it
};

// `origin` names the text in errors.
ExportedFile parse_exported_file(std::string_view text, const std::string& origin);

// A number, or one of the strings "nan", "inf", "-inf" that stand for what JSON cannot say.
bool is_number(const Json& value);
double to_number(const Json& value);

}  // namespace ac
