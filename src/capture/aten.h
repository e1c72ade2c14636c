// ATen's ops in terms of our op table: one line an op, with the names and types of its arguments,
// which are checked before its translation runs. What the table does not have is refused, and so
// is every argument that it does not name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "capture/sizes.h"
#include "ir/builder.h"
#include "ir/normalise/mask.h"

namespace ac {

// A Python number: a bool, an int (perhaps symbolic) or a float.
struct Scalar {
  enum class Kind : std::uint8_t { boolean, integer, number } kind;
  Dim size;          // of an integer
  double value = 0;  // of the others, and of an integer that is a constant

  DType dtype() const;  // that it would have as a tensor
  double constant() const;
};
using AtenOperand = std::variant<NodeId, Scalar>;
using AtenArgument = std::variant<std::monostate, bool, Scalar, Dim, Shape, NodeId,
                                  std::vector<std::optional<NodeId>>, std::string, DType>;

// What translations share in one graph.
struct AtenContext {
  Builder& build;
  SymbolRange range;
  Prover prover;  // of the graph that is being built
  std::optional<NodeId> positions;
  // How many elements of constants may still be made: a node that is a few bytes of JSON must not
  // cost gigabytes.
  std::int64_t constant_budget = std::int64_t{1} << 26;

  NodeId all_positions();  // i64[S]
};

// One call of an ATen op, with checked arguments. The accessors expect what the op's line in the
// table says; `maybe_` ones are for arguments that may be None.
class AtenCall {
 public:
  AtenCall(AtenContext& context, std::map<std::string, AtenArgument, std::less<>> args,
           const std::vector<TensorType>& declared)
      : context_(context), args_(std::move(args)), declared_(declared) {}

  AtenContext& context() const { return context_; }
  Builder& build() const { return context_.build; }
  const TensorType& type(NodeId id) const { return build().type(id); }
  const Shape& shape(NodeId id) const { return type(id).shape; }
  std::size_t rank(NodeId id) const { return shape(id).size(); }

  bool has(std::string_view name) const;  // is not None
  bool flag(std::string_view name) const { return get<bool>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  NodeId tensor(std::string_view name) const { return get<NodeId>(name); }
  std::optional<NodeId> maybe_tensor(std::string_view name) const;
  const std::vector<std::optional<NodeId>>& maybe_tensors(std::string_view name) const;
  std::vector<NodeId> tensors(std::string_view name) const;
  AtenOperand operand(std::string_view name) const;
  const Scalar& scalar(std::string_view name) const { return get<Scalar>(name); }
  double number(std::string_view name) const { return scalar(name).constant(); }
  const Dim& dim(std::string_view name) const { return get<Dim>(name); }
  const Shape& dims(std::string_view name) const { return get<Shape>(name); }
  std::int64_t integer(std::string_view name) const;
  std::vector<std::int64_t> integers(std::string_view name) const;
  std::optional<DType> maybe_dtype(std::string_view name) const;

  // An axis counted from the end if negative, of a tensor of this rank.
  std::size_t axis(std::string_view name, std::size_t rank) const;
  // The axes of a list; all of them when there is no list, or an empty one.
  std::vector<std::int64_t> axes(std::string_view name, std::size_t rank) const;

  const TensorType& declared() const { return declared_[0]; }
  // Asked before making the results of an op that has any number of them.
  void expect_results(std::size_t count) const;

 private:
  template <class T>
  const T& get(std::string_view name) const {
    return std::get<T>(args_.find(name)->second);
  }

  AtenContext& context_;
  std::map<std::string, AtenArgument, std::less<>> args_;
  const std::vector<TensorType>& declared_;
};

// A result that nothing in a forward needs, and that a reference to is an error.
inline constexpr NodeId kNoResult = -1;

struct AtenOp {
  std::string name;
  // "self:tensor dim:int dtype:dtype?". Types: tensor, tensors (a list; with "?" some may be None),
  // operand (tensor or number), number, int, ints, bool, text, dtype; "?" allows None.
  std::string arguments;
  std::function<std::vector<NodeId>(const AtenCall&)> translate;
};

const std::vector<AtenOp>& aten_table();
const AtenOp* find_aten_op(std::string_view name);

// The results of one call. `resolve` gives the node of a {"ref": ...}.
std::vector<NodeId> translate_aten(AtenContext& context, const AtenOp& op, const Json& args,
                                   const std::vector<TensorType>& declared,
                                   const std::function<NodeId(const Json&)>& resolve);

// The entries from start to end, in Python's sense of bounds: negative ones count from the end.
Dim slice_bound(const AtenCall& call, Dim bound, const Dim& size);
NodeId slice_from(const AtenCall& call, NodeId x, std::size_t axis, const Dim& start, Dim end,
                  std::int64_t step);
NodeId select_at(const AtenCall& call, NodeId x, std::size_t axis, Dim index);
// The entries of one axis that the index names, in the place of that axis.
NodeId take(const AtenCall& call, NodeId x, std::size_t axis, NodeId index);

// The parts of the table.
std::vector<AtenOp> aten_elementwise_ops();
std::vector<AtenOp> aten_view_ops();
std::vector<AtenOp> aten_layer_ops();
std::vector<AtenOp> aten_creation_ops();
std::vector<AtenOp> aten_reduction_ops();
std::vector<AtenOp> aten_rounding_ops();
std::vector<AtenOp> aten_writing_ops();

// PyTorch's result type of mixed operands: tensors with axes first, then 0-dimensional ones, then
// Python numbers; a later class only counts when its kind (bool, integer, float) is higher.
DType result_dtype(const AtenCall& call, const std::vector<AtenOperand>& operands);
// The operand as a tensor of this dtype.
NodeId as_dtype(const AtenCall& call, const AtenOperand& operand, DType dtype);
// The same as a tensor stores it: a number is rounded to the type, which is how it differs from one
// that an op computes with.
NodeId as_element(const AtenCall& call, const AtenOperand& operand, DType dtype);
NodeId as_float(const AtenCall& call, NodeId x);  // integers and bools become float32
// Elementwise, after promotion.
NodeId elementwise(const AtenCall& call, Op op, const AtenOperand& a, const AtenOperand& b);
NodeId times(const AtenCall& call, NodeId x, double factor);
NodeId number_like(const AtenCall& call, NodeId x, double value);  // of x's type, without axes

}  // namespace ac
