// The op table's work: how many floating-point operations an op does and how many bytes it moves.
// Estimates for rooflines: an addition counts 1, a special function (exp, tanh, a division) 4, and
// every value is moved once.
#pragma once

#include <cstdint>

#include "ir/step_graph.h"

namespace ac {

struct Work {
  Dim flops;
  Dim weight_bytes;      // read
  Dim activation_bytes;  // read and written; inputs, constants and positions among them
  Dim state_bytes;       // of the KV cache, read and written
  // > 0: attention reaches back window - 1 tokens, so P counts for no more than that.
  std::int64_t window = 0;

  Dim bytes() const { return weight_bytes + activation_bytes + state_bytes; }
  bool operator==(const Work&) const = default;
};

// Work at one T and P.
struct Amount {
  std::int64_t flops = 0, weight_bytes = 0, activation_bytes = 0, state_bytes = 0;

  std::int64_t bytes() const { return weight_bytes + activation_bytes + state_bytes; }
  double intensity() const;  // flops a byte; 0 where nothing is moved
  Amount& operator+=(const Amount& other);
};
Amount evaluate(const Work& work, const Bindings& at);

Dim flops_of(const Graph& graph, NodeId id);
// What reading one operand moves: only the rows looked up, for a table; nothing for positions,
// which a kernel counts itself.
Dim operand_bytes(const Graph& graph, NodeId id, std::size_t operand);
Dim result_bytes(const Graph& graph, NodeId id);
Dim state_bytes_of(const Graph& graph, NodeId id);  // where elements are stored as they are
Dim state_bytes_of(const StepGraph& step, NodeId id);

// Of an op that runs by itself.
Work work_of(const Graph& graph, NodeId id);
Work work_of(const StepGraph& step, NodeId id);

}  // namespace ac
