#include "capture/aten.h"

#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "capture/exported_file.h"

namespace ac {
namespace {

struct OpParameter {
  std::string name, type;
  bool may_be_none;
};

std::vector<OpParameter> parse_parameters(const std::string& text) {
  std::vector<OpParameter> parameters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t colon = text.find(':', at);
    AC_ASSERT(colon < end);
    OpParameter parameter{text.substr(at, colon - at), text.substr(colon + 1, end - colon - 1),
                          text[end - 1] == '?'};
    if (parameter.may_be_none) parameter.type.pop_back();
    parameters.push_back(std::move(parameter));
    at = end + 1;
  }
  return parameters;
}

struct OpEntry {
  AtenOp op;
  std::vector<OpParameter> parameters;
};

const std::unordered_map<std::string_view, OpEntry>& entries() {
  static const auto table = [] {
    std::unordered_map<std::string_view, OpEntry> made;
    for (const AtenOp& op : aten_table())
      AC_ASSERT(made.try_emplace(op.name, OpEntry{op, parse_parameters(op.arguments)}).second);
    return made;
  }();
  return table;
}

bool is_reference(const Json& value) { return value.is_object() && value.contains("ref"); }
bool is_dim(const Json& value) { return value.is_object() && value.contains("dim"); }

class Decoder {
 public:
  Decoder(const SymbolRange& range, const std::function<NodeId(const Json&)>& resolve)
      : range_(range), resolve_(resolve) {}

  AtenArgument decode(const OpParameter& parameter, const Json& value) const {
    const std::string& type = parameter.type;
    if (type == "tensors") return tensors(parameter, value);
    if (parameter.may_be_none && value.is_null()) return std::monostate{};
    if (type == "tensor" && is_reference(value)) return resolve_(value);
    if (type == "operand" && is_reference(value)) return resolve_(value);
    if (type == "operand" || type == "number") {
      if (value.is_boolean()) return Scalar{Scalar::Kind::boolean, {}, value.get<bool>() ? 1. : 0.};
      if (value.is_number_integer() || is_dim(value)) {
        const Dim size = dim(value);
        return Scalar{Scalar::Kind::integer, size,
                      size.is_constant() ? static_cast<double>(size.constant()) : 0};
      }
      if (is_number(value)) return Scalar{Scalar::Kind::number, {}, to_number(value)};
    }
    if (type == "int" && (value.is_number_integer() || is_dim(value))) return dim(value);
    if (type == "ints" && value.is_array()) {
      Shape sizes;
      for (const Json& item : value) {
        if (!item.is_number_integer() && !is_dim(item)) mismatch(parameter, value);
        sizes.push_back(dim(item));
      }
      return sizes;
    }
    if (type == "bool" && value.is_boolean()) return value.get<bool>();
    if (type == "text" && value.is_string()) return value.get<std::string>();
    if (type == "dtype" && value.is_object() && value.contains("dtype") &&
        value["dtype"].is_string()) {
      const auto& name = value["dtype"].get_ref<const std::string&>();
      const auto dtype = dtype_from_torch_name(name);
      if (!dtype || is_code(*dtype)) bad_input("elements of type \"{}\" are not supported", name);
      return *dtype;
    }
    mismatch(parameter, value);
  }

 private:
  [[noreturn]] static void mismatch(const OpParameter& parameter, const Json& value) {
    bad_input("argument \"{}\" is {}, expected {}{}", parameter.name, value.dump().substr(0, 100),
              parameter.type, parameter.may_be_none ? " or null" : "");
  }

  Dim dim(const Json& value) const {
    return read_size(is_dim(value) ? value["dim"] : value, range_);
  }

  AtenArgument tensors(const OpParameter& parameter, const Json& value) const {
    if (!value.is_array()) mismatch(parameter, value);
    std::vector<std::optional<NodeId>> items;
    for (const Json& item : value) {
      if (item.is_null() && parameter.may_be_none)
        items.emplace_back();
      else if (is_reference(item))
        items.emplace_back(resolve_(item));
      else
        mismatch(parameter, value);
    }
    return items;
  }

  const SymbolRange& range_;
  const std::function<NodeId(const Json&)>& resolve_;
};

std::size_t normalise_axis(std::int64_t axis, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count) bad_input("axis {} of a tensor of {} axes", axis, rank);
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

}  // namespace

DType Scalar::dtype() const {
  return kind == Kind::boolean ? DType::boolean : kind == Kind::integer ? DType::i64 : DType::f32;
}

double Scalar::constant() const {
  if (kind == Kind::integer && !size.is_constant())
    bad_input("the size {} as a value is not supported", size.str());
  return value;
}

NodeId AtenContext::all_positions() {
  if (!positions) positions = build.positions(Symbol::S);
  return *positions;
}

bool AtenCall::has(std::string_view name) const {
  return !std::holds_alternative<std::monostate>(args_.find(name)->second);
}

std::optional<NodeId> AtenCall::maybe_tensor(std::string_view name) const {
  return has(name) ? std::optional(tensor(name)) : std::nullopt;
}

const std::vector<std::optional<NodeId>>& AtenCall::maybe_tensors(std::string_view name) const {
  return get<std::vector<std::optional<NodeId>>>(name);
}

std::vector<NodeId> AtenCall::tensors(std::string_view name) const {
  std::vector<NodeId> ids;
  for (const auto& item : maybe_tensors(name)) ids.push_back(*item);
  if (ids.empty()) bad_input("argument \"{}\" is an empty list", name);
  return ids;
}

AtenOperand AtenCall::operand(std::string_view name) const {
  const AtenArgument& argument = args_.find(name)->second;
  if (const auto* scalar = std::get_if<Scalar>(&argument)) return *scalar;
  return std::get<NodeId>(argument);
}

std::int64_t AtenCall::integer(std::string_view name) const {
  if (!dim(name).is_constant())
    bad_input("argument \"{}\" is {}, which depends on the number of tokens", name,
              dim(name).str());
  return dim(name).constant();
}

std::vector<std::int64_t> AtenCall::integers(std::string_view name) const {
  std::vector<std::int64_t> values;
  for (const Dim& size : dims(name)) {
    if (!size.is_constant())
      bad_input("argument \"{}\" has {}, which depends on the number of tokens", name, size.str());
    values.push_back(size.constant());
  }
  return values;
}

std::optional<DType> AtenCall::maybe_dtype(std::string_view name) const {
  return has(name) ? std::optional(get<DType>(name)) : std::nullopt;
}

std::size_t AtenCall::axis(std::string_view name, std::size_t rank) const {
  return normalise_axis(integer(name), rank);
}

std::vector<std::int64_t> AtenCall::axes(std::string_view name, std::size_t rank) const {
  std::vector<std::int64_t> result;
  std::vector<bool> taken(rank);
  if (has(name)) {
    for (const std::int64_t value : integers(name)) {
      const std::size_t axis = normalise_axis(value, rank);
      if (taken[axis]) bad_input("argument \"{}\" has axis {} twice", name, axis);
      taken[axis] = true;
      result.push_back(static_cast<std::int64_t>(axis));
    }
  }
  if (result.empty())
    for (std::size_t axis = 0; axis < rank; ++axis)
      result.push_back(static_cast<std::int64_t>(axis));
  return result;
}

void AtenCall::expect_results(std::size_t count) const {
  if (declared_.size() != count)
    bad_input("has {} results, but {} are declared", count, declared_.size());
}

const std::vector<AtenOp>& aten_table() {
  static const auto table = [] {
    std::vector<AtenOp> all;
    for (auto part : {aten_elementwise_ops, aten_view_ops, aten_layer_ops, aten_creation_ops,
                      aten_reduction_ops, aten_rounding_ops, aten_writing_ops})
      for (AtenOp& op : part()) all.push_back(std::move(op));
    return all;
  }();
  return table;
}

const AtenOp* find_aten_op(std::string_view name) {
  const auto found = entries().find(name);
  return found == entries().end() ? nullptr : &found->second.op;
}

std::vector<NodeId> translate_aten(AtenContext& context, const AtenOp& op, const Json& args,
                                   const std::vector<TensorType>& declared,
                                   const std::function<NodeId(const Json&)>& resolve) {
  const std::vector<OpParameter>& parameters = entries().at(op.name).parameters;
  const Decoder decoder(context.range, resolve);
  std::map<std::string, AtenArgument, std::less<>> decoded;
  for (const OpParameter& parameter : parameters) {
    const auto found = args.find(parameter.name);
    if (found == args.end()) bad_input("argument \"{}\" is missing", parameter.name);
    decoded.emplace(parameter.name, decoder.decode(parameter, *found));
  }
  if (args.size() != parameters.size())
    for (const auto& [name, value] : args.items())
      if (!decoded.contains(name)) bad_input("has no argument \"{}\"", name);
  return op.translate(AtenCall(context, std::move(decoded), declared));
}

}  // namespace ac
