// What kind of computation a region looks like, by rules over its ops.
#include <algorithm>
#include <set>

#include "analyze/describe.h"
#include "analyze/legality.h"
#include "base/error.h"
#include "ir/layout.h"
#include "ir/shape.h"

namespace ac {
namespace {

Access access_of(Op op) {
  if (info(op).rule == ShapeRule::attention) return Access::attention;
  if (is_matrix(op)) return Access::matrix;
  if (op == Op::embedding) return Access::gather;
  return info(op).reduces() ? Access::row_reduction : Access::streaming;
}

class Classifier {
 public:
  Classifier(const Graph& graph, const Region& region) : graph_(graph), region_(region) {}

  Category run() const {
    const int states = count(Op::append_attend), matrices = count(Op::matmul) + count(Op::linear);
    if (states > 0) return with_attention(matrices);
    if (count(Op::attention) > 0) return size() == 1 ? Category::attention : Category::mixed;
    if (matrices > 0) return with_matrices(matrices);
    if (count(Op::embedding) > 0)
      return count(Op::embedding) + pointwise() == size() ? Category::embedding : Category::mixed;
    if (row_reductions() > 0) return with_reductions();
    return pointwise() + count(Op::rope) + count(Op::cast) == size() ? Category::elementwise
                                                                     : Category::mixed;
  }

 private:
  int count(Op op) const {
    return static_cast<int>(std::count(region_.ops.begin(), region_.ops.end(), op));
  }
  int size() const { return static_cast<int>(region_.ops.size()); }
  int pointwise() const {
    return static_cast<int>(std::count_if(region_.ops.begin(), region_.ops.end(), is_pointwise));
  }
  int row_reductions() const {
    return static_cast<int>(std::count_if(region_.ops.begin(), region_.ops.end(), [](Op op) {
      return access_of(op) == Access::row_reduction;
    }));
  }

  Category with_attention(int matrices) const {
    if (size() == 1) return Category::attention;
    return count(Op::rope) > 0 && matrices == 0 ? Category::rope_append : Category::mixed;
  }

  // Products of one input, side by side, each with what follows it element by element.
  Category with_matrices(int matrices) const {
    if (matrices + pointwise() != size()) return Category::mixed;
    std::set<NodeId> operands, behind;
    for (const NodeId id : region_.nodes) {
      const Node& node = graph_[id];
      const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                       [&](NodeId input) { return behind.count(input) > 0; });
      if (is_matrix(node.op)) {
        operands.insert(node.inputs[0]);
        if (follows) return Category::mixed;
      } else if (is_compute(node) && !follows) {
        return Category::mixed;
      }
      if (is_matrix(node.op) || follows) behind.insert(id);
    }
    if (operands.size() > 1) return Category::mixed;
    return matrices == size() ? Category::gemm : Category::gemm_epilogue;
  }

  bool only(std::initializer_list<Op> ops) const {
    return std::all_of(region_.ops.begin(), region_.ops.end(),
                       [&](Op op) { return std::find(ops.begin(), ops.end(), op) != ops.end(); });
  }

  bool is_square(NodeId id) const {
    const Node& node = graph_[id];
    if (node.op == Op::mul) return node.inputs[0] == node.inputs[1];
    if (node.op != Op::pow) return false;
    const Node& exponent = graph_[storage_of(graph_, node.inputs[1])];
    return exponent.op == Op::constant && exponent.data() == std::vector<double>{2.0};
  }

  // Spelled-out norms: means (of squares), a root, and arithmetic around them.
  Category with_reductions() const {
    const int reductions = row_reductions();
    if (size() == 1) {
      if (count(Op::softmax) == 1) return Category::softmax;
      if (count(Op::rms_norm) == 1) return Category::rms_norm;
      if (count(Op::layer_norm) == 1) return Category::layer_norm;
    }
    const bool arithmetic = reductions + pointwise() + count(Op::rope) == size();
    if (!arithmetic) return Category::mixed;
    if (count(Op::amax) == 1 && count(Op::sum) == 1 && count(Op::exp) == 1 && reductions == 2 &&
        only({Op::amax, Op::sum, Op::exp, Op::sub, Op::div, Op::mul, Op::reciprocal}))
      return Category::softmax;
    int squares = 0, plain = 0;
    for (const NodeId id : region_.nodes)
      if (graph_[id].op == Op::mean || graph_[id].op == Op::sum)
        ++(is_square(graph_[id].inputs[0]) ? squares : plain);
    const bool norm = squares == 1 && count(Op::rsqrt) + count(Op::sqrt) == 1 &&
                      only({Op::mean, Op::sum, Op::mul, Op::pow, Op::add, Op::sub, Op::rsqrt,
                            Op::sqrt, Op::div, Op::reciprocal});
    if (norm && plain == 0 && reductions == 1) return Category::rms_norm;
    if (norm && plain == 1 && reductions == 2) return Category::layer_norm;
    return Category::reduction_pointwise;
  }

  const Graph& graph_;
  const Region& region_;
};

}  // namespace

void classify(const Graph& graph, Region& region) {
  // Of the heaviest class, the first with most work.
  const Bindings at{1, 1, 1};
  const Node* dominant = nullptr;
  std::int64_t most = -1;
  for (const NodeId id : region.nodes) {
    const Node& node = graph[id];
    if (!is_compute(node)) continue;
    const std::int64_t flops = flops_of(graph, id).evaluate(at);
    if (dominant) {
      const Access access = access_of(node.op), leader = access_of(dominant->op);
      if (access < leader || (access == leader && flops <= most)) continue;
    }
    dominant = &node;
    most = flops;
  }
  region.dominant = dominant->op;
  region.access = access_of(dominant->op);
  region.reduction_axes = reduced_axes(graph, *dominant);
  region.category = Classifier(graph, region).run();
}

}  // namespace ac
