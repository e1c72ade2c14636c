#include "ir/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/warning.h"
#include "ir/layout.h"

namespace ac {
namespace {

constexpr std::int64_t kDefaultContext = 4096;
constexpr std::int64_t kPricedAfter = 1024;  // tokens

}  // namespace

NodeId ids_of(const StepGraph& step) {
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i)
    if (step.graph.nodes[i].op == Op::input) return static_cast<NodeId>(i);
  bad_input("the model has no input: a package takes token ids");
}

TokenLimit token_limit(const StepGraph& step) {
  TokenLimit limit = step.graph.limit;
  for (std::size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    if (node.op != Op::embedding) continue;
    if (step.graph[storage_of(step.graph, node.inputs[1])].op != Op::positions) continue;
    const Dim& rows = step.graph.type(node.inputs[0]).shape[0];
    if (rows.is_constant())
      limit.lower(rows.constant(),
                  fmt::format("{}: its table has {} rows",
                              describe(step.graph, static_cast<NodeId>(i)), rows.constant()));
  }
  return limit;
}

std::int64_t max_context(const StepGraph& step, std::int64_t wanted,
                         std::optional<std::int64_t> known) {
  const TokenLimit limit = token_limit(step);
  const std::int64_t most = limit.tokens;
  if (wanted > most)
    bad_input("the model is right for at most {} tokens{}: --max-context {} is too much", most,
              limit.reason(), wanted);
  if (known && wanted > *known)
    warn(
        "the model was made for {} positions: what it says behind them (--max-context {}) may make "
        "no sense",
        *known, wanted);
  return wanted > 0 ? wanted : std::min({kDefaultContext, most, known.value_or(most)});
}

Bindings priced_at(std::int64_t tokens, std::int64_t max_context) {
  return {.S = -1, .T = tokens, .P = std::min(kPricedAfter, max_context - tokens)};
}

}  // namespace ac
