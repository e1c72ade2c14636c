// softmax(mask(scale * q k^T)) v, in the many ways people write it, becomes one `attention` op.
#include <cmath>

#include "base/error.h"
#include "ir/normalise/mask.h"
#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

// A score this low leaves nothing after softmax, whatever the other scores are: float16's lowest
// value and the -1e4 of old code included.
constexpr double kMasked = -1e4;

struct Scores {
  NodeId q = -1, k_transposed = -1;  // [..., S, d] and [..., d, S]
  double scale = 1, softcap = 0;
  std::optional<Band> allowed;  // inside = visible
};

class Recogniser {
 public:
  Recogniser(Builder& out, const Graph& graph) : out_(out), graph_(graph) {}

  // `node` is matmul(softmax(scores), v).
  NodeId attention(const Node& node, NodeId softmax) {
    scores_ = {};
    const Node& probabilities = graph_[softmax];
    if (probabilities.integer("axis") != rank(softmax) - 1)
      refuse(softmax, "the softmax is not over the last axis");
    read(probabilities.inputs[0]);
    if (!scores_.allowed) refuse(softmax, "nothing masks the tokens that come later");
    const Band& seen = *scores_.allowed;
    if (seen.low != 0)
      refuse(softmax, seen.low && *seen.low > 0 ? "a token does not see itself"
                                                : "a token sees tokens that come later");
    const std::int64_t window = seen.high ? *seen.high + 1 : 0;

    const NodeId v = node.inputs[1];
    const NodeId q3 = tokens_first(scores_.q, rank(scores_.q) - 2, scores_.q);
    const NodeId k3 = tokens_first(scores_.k_transposed, rank(scores_.k_transposed) - 1, scores_.q);
    const NodeId v3 = tokens_first(v, rank(v) - 2, scores_.q);
    const DType dtype = out_.type(q3).dtype;
    NodeId result = out_.attention(q3, out_.cast(k3, dtype), out_.cast(v3, dtype), scores_.scale,
                                   window, scores_.softcap);

    // Back to [..., S, dv].
    const Shape& shape = node.type.shape;
    Shape spread{shape[shape.size() - 2]};
    spread.insert(spread.end(), shape.begin(), shape.end() - 2);
    spread.push_back(shape.back());
    std::vector<std::int64_t> axes;
    for (std::size_t i = 1; i + 1 < shape.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
    axes.push_back(0);
    axes.push_back(static_cast<std::int64_t>(shape.size()) - 1);
    result = out_.permute(out_.reshape(result, spread), axes);
    return out_.cast(result, node.type.dtype);
  }

 private:
  std::int64_t rank(NodeId id) const {
    return static_cast<std::int64_t>(graph_.type(id).shape.size());
  }

  [[noreturn]] void refuse(NodeId id, const std::string& why) const {
    bad_input("{}: attention that is not provably causal: {}", describe(graph_, id), why);
  }

  // Follows the scores from the softmax down to q k^T.
  void read(NodeId id) {
    const Node& node = graph_[id];
    switch (node.op) {
      case Op::matmul:
        scores_.q = node.inputs[0];
        scores_.k_transposed = node.inputs[1];
        return;
      case Op::cast:
        return read(node.inputs[0]);
      case Op::mul:
      case Op::div:
        return read_scaled(id);
      case Op::add:
        return read_additive_mask(id);
      case Op::where:
        return read_where(id);
      default:
        refuse(id, "this op stands between q k^T and the softmax");
    }
  }

  void read_scaled(NodeId id) {
    const Op op = graph_[id].op;
    const auto scaled = match_scalar(graph_, id, op);
    if (!scaled) refuse(id, "the scores are scaled by a tensor");
    const double factor = op == Op::mul ? scaled->scalar : 1 / scaled->scalar;
    const NodeId inner = without_casts(graph_, scaled->x);
    if (graph_[inner].op == Op::tanh) return read_softcap(inner, factor);
    read(scaled->x);
    if (scores_.allowed || scores_.softcap != 0)
      refuse(id, "the scores are scaled after they were masked or capped");
    scores_.scale *= factor;
  }

  void read_softcap(NodeId tanh, double cap) {
    const NodeId argument = without_casts(graph_, graph_[tanh].inputs[0]);
    const Op op = graph_[argument].op;
    const auto divided = match_scalar(graph_, argument, op);
    const bool matches =
        divided && ((op == Op::div && divided->scalar == cap) ||
                    (op == Op::mul && std::fabs(divided->scalar * cap - 1) < 1e-6));
    if (!matches || !(cap > 0)) refuse(tanh, "tanh of the scores is not c * tanh(scores / c)");
    read(divided->x);
    if (scores_.allowed || scores_.softcap != 0)
      refuse(tanh, "the scores are capped after they were masked or capped");
    scores_.softcap = cap;
  }

  void read_additive_mask(NodeId id) {
    const Node& node = graph_[id];
    for (const int side : {1, 0}) {
      const NodeId mask = node.inputs[static_cast<std::size_t>(side)];
      const auto band = prove_band(graph_, mask);
      if (!band) continue;
      read(node.inputs[static_cast<std::size_t>(1 - side)]);
      return restrict_to(id, *band, 0);
    }
    refuse(id, "the mask added to the scores depends on more than positions");
  }

  void read_where(NodeId id) {
    const Node& node = graph_[id];
    const auto condition = prove_band(graph_, node.inputs[0]);
    if (!condition) refuse(id, "the mask depends on more than positions");
    for (const int side : {2, 1}) {
      const auto other = uniform_value(graph_, node.inputs[static_cast<std::size_t>(side)]);
      if (!other || !(*other <= kMasked)) continue;
      Band mask = *condition;  // as an additive mask
      for (double* value : {&mask.inside, &mask.outside})
        *value = (*value != 0) == (side == 2) ? 0 : -INFINITY;
      read(node.inputs[static_cast<std::size_t>(3 - side)]);
      return restrict_to(id, mask, 0);
    }
    refuse(id, "what is masked does not become a very low score");
  }

  void restrict_to(NodeId id, Band mask, double visible) {
    if (mask.uniform()) {
      if (mask.inside != visible) refuse(id, "the mask hides everything");
      return;
    }
    if (mask.outside == visible) {
      const auto turned = complement(mask);
      if (!turned) refuse(id, "the mask hides tokens in the middle");
      mask = *turned;
    }
    if (mask.inside != visible || !(mask.outside <= kMasked))
      refuse(id, fmt::format("the mask adds {} and {}", mask.inside, mask.outside));
    scores_.allowed = scores_.allowed ? intersect(*scores_.allowed, mask, 1, 0) : mask;
  }

  // x with its token axis moved to the front and its leading axes merged into heads: [S, h, d].
  // Leading axes of size 1 may broadcast against those of q if they are innermost: grouped heads.
  NodeId tokens_first(NodeId x, std::int64_t token_axis, NodeId q) {
    const Shape& shape = graph_.type(x).shape;
    const Shape& q_shape = graph_.type(q).shape;
    if (shape.size() != q_shape.size()) refuse(x, "q, k and v differ in rank");
    bool broadcasting = false;
    for (std::size_t i = 0; i + 2 < shape.size(); ++i) {
      if (shape[i] != q_shape[i]) broadcasting = true;
      if (broadcasting && shape[i] != Dim(1)) refuse(x, "heads of q, k and v do not match");
    }
    const auto r = static_cast<std::int64_t>(shape.size());
    std::vector<std::int64_t> axes{token_axis};
    Dim heads(1);
    for (std::int64_t i = 0; i < r - 2; ++i) {
      axes.push_back(i);
      heads = heads * shape[static_cast<std::size_t>(i)];
    }
    axes.push_back(token_axis == r - 1 ? r - 2 : r - 1);
    const NodeId moved = out_.permute(x, axes);
    return out_.reshape(moved, {out_.type(moved).shape[0], heads, out_.type(moved).shape.back()});
  }

  Builder& out_;
  const Graph& graph_;
  Scores scores_;
};

std::optional<NodeId> recognise(Builder& out, const Graph& graph, const Node& node) {
  if (node.op != Op::matmul) return std::nullopt;
  const NodeId softmax = without_casts(graph, node.inputs[0]);
  const Shape& shape = graph.type(softmax).shape;
  const Dim S(Symbol::S);
  if (graph[softmax].op != Op::softmax || shape.size() < 2 || shape.back() != S ||
      shape[shape.size() - 2] != S)
    return std::nullopt;
  return Recogniser(out, graph).attention(node, softmax);
}

}  // namespace

Graph recognise_attention(const Graph& graph) { return rewrite(graph, {recognise}); }

}  // namespace ac
