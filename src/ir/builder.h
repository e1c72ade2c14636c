// Short spellings for building graphs by hand: front ends, passes and tests use these.
#pragma once

#include <string>
#include <vector>

#include "base/weight_layout.h"
#include "ir/graph.h"

namespace ac {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  // Where the nodes that follow come from.
  void set_origin(std::string module, std::string source) {
    module_ = std::move(module);
    source_ = std::move(source);
  }
  void set_origin(const Node& node) { set_origin(node.module, node.source); }
  void set_module(std::string module) { set_origin(std::move(module), {}); }
  const std::string& module() const { return module_; }
  const std::string& source() const { return source_; }
  const Graph& graph() const { return graph_; }
  const TensorType& type(NodeId id) const { return graph_.type(id); }

  NodeId input(std::string name, TensorType type);
  // Stored in a format: `type` is what it means. Keys of its parts follow from the first.
  NodeId weight(const std::string& module, TensorType type, const Format& format, FileLayout layout,
                std::string store = "checkpoint");
  NodeId weight(std::string key, TensorType type, std::string store = "checkpoint");
  NodeId constant(DType dtype, std::vector<std::int64_t> shape, std::vector<double> data);
  NodeId scalar(DType dtype, double value);  // shape []
  NodeId positions(Dim count);

  NodeId unary(Op op, NodeId x) { return add(op, {x}); }
  NodeId binary(Op op, NodeId a, NodeId b) { return add(op, {a, b}); }
  NodeId cast(NodeId x, DType dtype);  // x itself when nothing changes
  NodeId gelu(NodeId x, bool tanh);
  NodeId reduce(Op op, NodeId x, std::vector<std::int64_t> axes, bool keep);
  NodeId softmax(NodeId x, std::int64_t axis);
  NodeId rms_norm(NodeId x, NodeId weight, double eps, double weight_offset);
  NodeId layer_norm(std::vector<NodeId> x_weight_bias, double eps);
  NodeId linear(NodeId x, NodeId weight) { return add(Op::linear, {x, weight}); }
  NodeId linear(NodeId x, NodeId weight, NodeId bias) { return add(Op::linear, {x, weight, bias}); }
  NodeId matmul(NodeId a, NodeId b) { return add(Op::matmul, {a, b}); }
  NodeId embedding(NodeId table, NodeId ids) { return add(Op::embedding, {table, ids}); }
  NodeId rope(NodeId x, NodeId positions, NodeId inv_freq, double scale, bool interleaved);
  NodeId attention(NodeId q, NodeId k, NodeId v, double scale, std::int64_t window, double softcap);
  NodeId append_attend(NodeId q, NodeId k, NodeId v, std::int64_t state, double scale,
                       std::int64_t window, double softcap);
  NodeId reshape(NodeId x, Shape shape);                     // x itself when nothing changes
  NodeId permute(NodeId x, std::vector<std::int64_t> axes);  // x itself when nothing changes
  NodeId expand(NodeId x, Shape shape);                      // x itself when nothing changes
  NodeId slice(NodeId x, std::int64_t axis, Dim start, Dim end, std::int64_t step = 1);
  NodeId concat(std::vector<NodeId> parts, std::int64_t axis);
  NodeId add(Op op, std::vector<NodeId> inputs, Attrs attrs = {});

 private:
  NodeId add_leaf(Op op, Attrs attrs, TensorType type);

  Graph& graph_;
  std::string module_, source_;
};

}  // namespace ac
