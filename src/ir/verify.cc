#include "ir/verify.h"

#include <set>

#include "base/error.h"
#include "ir/shape.h"
#include "ir/weights.h"

namespace ac {

void verify(const Graph& graph, const std::string& origin) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.nodes[i];
    const Inferred inferred = infer_type(graph, id);
    if (!inferred.problem.empty())
      bad_input("{}: {}: {}", origin, describe(graph, id), inferred.problem);
    if (inferred.type != node.type)
      bad_input("{}: {}: is declared {}, but its inputs make it {}", origin, describe(graph, id),
                to_string(node.type), to_string(inferred.type));
    if (is_code(node.type.dtype) && node.op != Op::weight)
      bad_input("{}: {}: no value is {}", origin, describe(graph, id), to_string(node.type));
    if (node.op == Op::weight)
      if (const std::string why = why_no_weight(node); !why.empty())
        bad_input("{}: {}: {}", origin, describe(graph, id), why);
    for (std::size_t in = 0; in < node.inputs.size(); ++in) {
      const Node& input = graph[node.inputs[in]];
      if (input.op == Op::weight && !format_of(input).is_plain() &&
          (node.op != Op::linear || in != 1))
        bad_input("{}: {}: its input {} is a weight in the format {}, which a linear alone reads",
                  origin, describe(graph, id), in, format_of(input).name);
    }
  }
  if (graph.limit.tokens < 1 || graph.limit.tokens > kMostTokens)
    bad_input("{}: a graph for at most {} tokens", origin, graph.limit.tokens);
  if (graph.outputs.empty()) bad_input("{}: the graph has no output", origin);
  std::set<std::string> names;
  for (const Output& output : graph.outputs) {
    if (output.node < 0 || static_cast<std::size_t>(output.node) >= graph.nodes.size())
      bad_input("{}: output \"{}\" is %{}, which is not a node", origin, output.name, output.node);
    if (const Node& node = graph[output.node]; node.op == Op::weight && !format_of(node).is_plain())
      bad_input("{}: output \"{}\" is a weight in a format", origin, output.name);
    if (!names.insert(output.name).second)
      bad_input("{}: two outputs are named \"{}\"", origin, output.name);
  }
}

}  // namespace ac
