#include "ir/graph.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "ir/shape.h"

namespace ac {
namespace {

std::vector<AttrSpec> parse_specs(const char* text) {
  static const std::map<std::string, AttrType> types{
      {"bool", AttrType::boolean}, {"int", AttrType::integer}, {"number", AttrType::number},
      {"text", AttrType::text},    {"dtype", AttrType::dtype}, {"ints", AttrType::integers},
      {"dim", AttrType::dim},      {"dims", AttrType::dims},   {"data", AttrType::data}};
  std::vector<AttrSpec> specs;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool optional = word.ends_with('?');
    if (optional) word.pop_back();
    const std::size_t colon = word.find(':');
    specs.push_back({word.substr(0, colon), types.at(word.substr(colon + 1)), optional});
  }
  return specs;
}

}  // namespace

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table{
#define AC_OP(name, fewest, most, rule, over, flops, contract, memory, attrs) \
  OpInfo{Op::name,        #name,                                              \
         fewest,          most,                                               \
         ShapeRule::rule, Over::over,                                         \
         flops,           Contract::contract,                                 \
         Memory::memory,  parse_specs(attrs)},
#include "ir/ops.def"
#undef AC_OP
  };
  return table;
}

const OpInfo& info(Op op) { return op_table()[static_cast<std::size_t>(op)]; }

const AttrSpec* OpInfo::attr(std::string_view attr_name) const {
  const auto found = std::find_if(attrs.begin(), attrs.end(),
                                  [&](const AttrSpec& spec) { return spec.name == attr_name; });
  return found == attrs.end() ? nullptr : &*found;
}

std::optional<Op> op_from_name(std::string_view name) {
  for (const OpInfo& entry : op_table())
    if (entry.name == name) return entry.op;
  return std::nullopt;
}

std::string_view to_string(Contract contract) {
  switch (contract) {
    case Contract::exact:
      return "exact";
    case Contract::precise:
      return "precise";
    case Contract::associative:
      return "associative";
    case Contract::relaxed:
      return "relaxed";
  }
  AC_UNREACHABLE();
}

std::string_view to_string(Memory memory) {
  switch (memory) {
    case Memory::pure:
      return "pure";
    case Memory::view:
      return "view";
    case Memory::state:
      return "state";
  }
  AC_UNREACHABLE();
}

std::string to_string(const TensorType& type) {
  return std::string(short_name(type.dtype)) + to_string(type.shape);
}

const Attr& Node::at(std::string_view name) const {
  const auto found = attrs.find(name);
  AC_ASSERT(found != attrs.end());
  return found->second;
}

NodeId Graph::add(Op op, std::vector<NodeId> inputs, Attrs attrs, std::string module,
                  std::string source) {
  nodes.push_back(
      {op, std::move(inputs), std::move(attrs), {}, std::move(module), std::move(source)});
  const auto id = static_cast<NodeId>(nodes.size() - 1);
  Inferred inferred = infer_type(*this, id);
  if (!inferred.problem.empty()) bad_input("{}: {}", describe(*this, id), inferred.problem);
  nodes.back().type = std::move(inferred.type);
  return id;
}

NodeId Graph::add_leaf(Op op, Attrs attrs, TensorType type, std::string module,
                       std::string source) {
  AC_ASSERT(info(op).rule == ShapeRule::declared || info(op).rule == ShapeRule::positions);
  nodes.push_back(
      {op, {}, std::move(attrs), std::move(type), std::move(module), std::move(source)});
  return static_cast<NodeId>(nodes.size() - 1);
}

std::string describe(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  std::string text(info(node.op).name);
  if (node.op == Op::weight) text += fmt::format(" \"{}\"", node.text("key"));
  if (!node.module.empty()) text += " at " + node.module;
  // The id is of the graph's text, which whoever captured a model has not seen.
  return node.source.empty() ? fmt::format("%{} = {}", id, text)
                             : fmt::format("{} ({})", text, node.source);
}

}  // namespace ac
