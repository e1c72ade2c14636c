// A region: a connected part of a step with an external interface, the unit that the compiler
// finds implementations for. Its description holds all that a planner asks: what it reads and
// writes and how, how much work it is, what kind of computation it looks like, and a signature that
// equal regions of different layers share, so that they are compiled once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "analyze/use_def.h"
#include "ir/layout.h"
#include "ir/work.h"

namespace ac {

enum class Role : std::uint8_t { activation, weight, constant, positions, state };
// From light to heavy: the heaviest class of a region decides which kernel family leads.
enum class Access : std::uint8_t { streaming, row_reduction, gather, matrix, attention };
enum class Category : std::uint8_t {
  gemm,
  gemm_epilogue,
  softmax,
  rms_norm,
  layer_norm,
  elementwise,
  reduction_pointwise,
  attention,
  rope_append,
  embedding,
  mixed,
};

// Why a region ends where it does.
enum class Reason : std::uint8_t {
  // Hard: nothing may be fused across.
  state,              // writes a state: nothing follows it in its region
  aliasing,           // a view of the value is an output of the step
  unsupported_dtype,  // not a float type that kernels exist for
  mixed_dtype,        // changes between float types
  dynamic_shape,      // a size other than a constant or T, or a reduction over such an axis
  // A choice of analyse(), which a fusion planner may make differently.
  stands_alone,    // matrix products, gathers and copies start regions of their own
  several_uses,    // more than the epilogue needs the product
  side_input,      // an epilogue with a second tensor, or one that is not ready
  layout,          // a view in between that changes which row an element is in
  shape,           // not the same rows
  reduction_axes,  // reductions over different axes
  order,           // the two could not run in any order
  // What make_region() refuses besides.
  not_compute,
  not_connected,
  not_convex,
};
bool is_hard(Reason reason);

std::string_view to_string(Role role);
std::string_view to_string(Access access);
std::string_view to_string(Category category);
std::string_view to_string(Reason reason);

struct Boundary {
  Reason reason;
  NodeId from, to;   // the edge that is not crossed; equal when the node itself is the reason
  std::string text;  // for people
  bool operator==(const Boundary&) const = default;
};

// A tensor of the interface.
struct Parameter {
  std::string name;  // in0 .., out0 .., cache0 ..
  Role role = Role::activation;
  NodeId value = 0;           // as the region sees it, behind the views
  NodeId storage = 0;         // what is in memory
  std::vector<NodeId> views;  // from the storage to the value
  std::string format = {};    // of a weight in one (base/weight_format.h)
  TensorType type;  // of the value; of keys and values: [P + T, heads, key size + value size]
  Layout layout;
  std::optional<double> immediate;  // a constant of one element: its value, and no argument
  std::int64_t state = -1;          // of a state: its index in the step
  Dim bytes;                        // moved

  bool operator==(const Parameter&) const = default;
};

// The calling convention: pointers to the storages of inputs, outputs and states, then the number
// of new tokens and of cached ones, where they are needed.
struct Argument {
  enum class Kind : std::uint8_t { input, output, state, new_tokens, cached_tokens };
  Kind kind;
  std::size_t index = 0;  // into inputs, outputs, states
  bool operator==(const Argument&) const = default;
};

struct Region {
  int id = 0;
  // Compute nodes and the views that they read through (a view may belong to several regions), in
  // an order that can run and that equal regions share.
  std::vector<NodeId> nodes;
  std::vector<Op> ops;  // of the compute nodes, in that order
  std::vector<Parameter> inputs, outputs, states;
  std::vector<Argument> arguments;
  DType dtype = DType::f32;                  // of the results
  DType accumulation = DType::f32;           // of sums inside
  std::vector<std::int64_t> reduction_axes;  // of the dominant op's first operand
  Op dominant = Op::add;
  Access access = Access::streaming;
  Category category = Category::mixed;
  Work work;                     // inputs and outputs only: what stays inside is not moved
  bool dynamic_rows = false;     // its shapes hold T
  bool dynamic_context = false;  // its work depends on P
  std::vector<Boundary> boundaries;
  std::string module;  // the longest path that all compute nodes share
  int layers = 0;      // of the step, if it is whole layers (layers.h)
  std::string signature;

  bool operator==(const Region&) const = default;
};

// The names of the region's ops, in order. A region of layers has one name, such as "28 layers".
std::vector<std::string> op_names(const Region& region);

// The region of any set of compute nodes, in any order (views between them come along and need not
// be named), or why they are not one: not connected (by values, or by an activation that they all
// read), not convex, or across a hard boundary. A single compute node is always a region.
// Nothing follows what writes a state, unless the region may go on behind it, as whole layers do.
enum class Behind : std::uint8_t { nothing, whatever };
std::variant<Region, Boundary> make_region(const UseDef& uses, std::vector<NodeId> nodes,
                                           Behind states = Behind::nothing);
std::variant<Region, Boundary> make_region(const StepGraph& step, std::vector<NodeId> nodes,
                                           Behind states = Behind::nothing);

}  // namespace ac
