// The graph of a decoder: SSA nodes over one op table, in topological order by construction (a node
// only refers to nodes before it). Tensors are dense and row-major; a change of layout is a view
// op.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "ir/dim.h"

namespace ac {

enum class Op : std::uint8_t {
#define AC_OP(name, ...) name,
#include "ir/ops.def"
#undef AC_OP
};

enum class ShapeRule : std::uint8_t {
  declared,
  positions,
  cast,
  unary,
  binary,
  compare,
  logical,
  where,
  reduce,
  softmax,
  norm,
  matmul,
  linear,
  embedding,
  rope,
  attention,
  reshape,
  permute,
  expand,
  slice,
  concat,
  triangle,
};
// What an element of the result is computed from; ops.def says what each means.
enum class Over : std::uint8_t { each, axes, axis, last, own };
enum class Contract : std::uint8_t { exact, precise, associative, relaxed };
enum class Memory : std::uint8_t { pure, view, state };
enum class AttrType : std::uint8_t {
  boolean,
  integer,
  number,
  text,
  dtype,
  integers,
  dim,
  dims,
  data
};

struct AttrSpec {
  std::string name;
  AttrType type;
  bool optional = false;  // a node may lack it
};

struct OpInfo {
  Op op;
  std::string_view name;
  int min_inputs, max_inputs;
  ShapeRule rule;
  Over over;
  int flops;
  Contract contract;
  Memory memory;
  std::vector<AttrSpec> attrs;

  const AttrSpec* attr(std::string_view name) const;
  bool reduces() const { return over != Over::each && over != Over::own; }
};

const std::vector<OpInfo>& op_table();
const OpInfo& info(Op op);
std::optional<Op> op_from_name(std::string_view name);
std::string_view to_string(Contract contract);
std::string_view to_string(Memory memory);

// Shared, because graphs are values and are copied by every pass.
using Data = std::shared_ptr<const std::vector<double>>;
using Attr = std::variant<bool, std::int64_t, double, std::string, DType, std::vector<std::int64_t>,
                          Dim, Shape, Data>;  // in the order of AttrType
using Attrs = std::map<std::string, Attr, std::less<>>;

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
std::string to_string(const TensorType& type);  // "f16[S, 64]"

using NodeId = std::int32_t;

struct Node {
  Op op;
  std::vector<NodeId> inputs;
  Attrs attrs;
  TensorType type;
  std::string module;       // dotted path of the module that this came from; may be empty
  std::string source = {};  // for messages: PyTorch's op and the line of the model; may be empty

  bool has(std::string_view name) const { return attrs.find(name) != attrs.end(); }
  bool flag(std::string_view name) const { return std::get<bool>(at(name)); }
  std::int64_t integer(std::string_view name) const { return std::get<std::int64_t>(at(name)); }
  double number(std::string_view name) const { return std::get<double>(at(name)); }
  const std::string& text(std::string_view name) const { return std::get<std::string>(at(name)); }
  const std::vector<std::int64_t>& integers(std::string_view name) const {
    return std::get<std::vector<std::int64_t>>(at(name));
  }
  const Dim& dim(std::string_view name) const { return std::get<Dim>(at(name)); }
  const Shape& dims(std::string_view name) const { return std::get<Shape>(at(name)); }
  const std::vector<double>& data() const { return *std::get<Data>(at("data")); }

 private:
  const Attr& at(std::string_view name) const;
};

struct Output {
  std::string name;
  NodeId node = 0;
  bool operator==(const Output&) const = default;
};

// No sequence is longer, whatever the model.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

// The longest sequence that a graph is right for.
struct TokenLimit {
  std::int64_t tokens = kMostTokens;
  std::string why;  // a clause that names the place; empty while nothing limits it

  void lower(std::int64_t to, std::string because) {
    if (to < tokens) tokens = to, why = std::move(because);
  }
  // " (why)", or nothing.
  std::string reason() const { return why.empty() ? "" : " (" + why + ")"; }
  bool operator==(const TokenLimit&) const = default;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Output> outputs;
  TokenLimit limit = {};  // of S, or P + T

  const Node& operator[](NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  const TensorType& type(NodeId id) const { return (*this)[id].type; }

  // Appends a node whose type follows from its inputs. What does not fit is an error naming the op
  // and the module.
  NodeId add(Op op, std::vector<NodeId> inputs, Attrs attrs, std::string module,
             std::string source = {});
  // Appends a leaf.
  NodeId add_leaf(Op op, Attrs attrs, TensorType type, std::string module, std::string source = {});
};

// For errors: "mul at model.layers.0.mlp (aten.mul.Tensor, model.py:31)", or without a source
// "%12 = mul at model.layers.0.mlp".
std::string describe(const Graph& graph, NodeId id);

}  // namespace ac
