#include "generate/chain.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "ir/layout.h"

namespace ac {
namespace {

std::string literal(double value) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
  return fmt::format("{:.9e}f", static_cast<float>(value));
}

class Chain {
 public:
  Chain(const Graph& graph, const std::vector<NodeId>& inputs) : graph_(graph) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      names_[inputs[i]] = std::string(1, static_cast<char>('a' + i));
      parameters_ += fmt::format("{}float {}", i > 0 ? ", " : "", names_[inputs[i]]);
    }
  }

  std::string text(NodeId result) {
    const std::string name = name_of(result);
    return fmt::format("  AC_DEVICE float operator()({}) const {{\n{}    return {};\n  }}\n",
                       parameters_, body_, name);
  }

 private:
  std::string name_of(NodeId value) {
    const auto known = names_.find(value);
    if (known != names_.end()) return known->second;
    const Node& node = graph_[value];
    if (node.op == Op::constant) return names_[value] = literal(node.data().at(0));
    // Views inside a chain only rename axes.
    if (info(node.op).memory == Memory::view) return names_[value] = name_of(node.inputs[0]);
    std::string arguments;
    for (const NodeId input : node.inputs) {
      const std::string name = name_of(input);
      arguments += (arguments.empty() ? "" : ", ") + name;
    }
    const std::string name = fmt::format("v{}", next_++);
    body_ += fmt::format("    const float {} = math::{}({});\n", name, function(node), arguments);
    return names_[value] = name;
  }

  static std::string function(const Node& node) {
    if (node.op == Op::gelu) return node.flag("tanh") ? "gelu_tanh" : "gelu_erf";
    if (node.op != Op::cast) return std::string(info(node.op).name);
    AC_ASSERT(is_float(node.type.dtype));
    if (node.type.dtype == DType::f32) return "cast<float>";
    return node.type.dtype == DType::f16 ? "cast<f16>" : "cast<bf16>";
  }

  const Graph& graph_;
  std::map<NodeId, std::string> names_;
  std::string parameters_, body_;
  int next_ = 0;
};

}  // namespace

std::string chain_functor(const Graph& graph, const std::vector<NodeId>& inputs, NodeId result) {
  return Chain(graph, inputs).text(result);
}

}  // namespace ac
