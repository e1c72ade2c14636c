// softmax(mask(scale * q k^T)) v, in the many ways people write it, becomes one `attention` op.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/assumptions.h"
#include "ir/normalise/mask.h"
#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

// exp of this is 0 in float32, and in every type that stores fewer bits.
constexpr double kVanishes = -104;
// The most that may be added to all scores, far below what hides them.
constexpr double kShift = 1024;
// Between the scores and the softmax, and more than anybody writes.
constexpr int kDeepest = 64;

// A finite number v above `hides` and at most this hides under an assumption that the graph
// records: no score is larger than |v| / 4 in magnitude. Then a score that v is added to stays
// below each visible one by |v| / 2. A score that v replaces does so by |v| / 4 at least, even if
// before that |v| / 8 was added to all scores and their maximum subtracted: the least visible score
// is then -2 * (|v| / 4 + |v| / 8). All that is further down than kVanishes.
constexpr double kHidesSmall = -1000;
constexpr double kShareOfShift = 8;

// The most that may be added to a score so that it counts as hidden, which is what -inf does. What
// a finite number does depends on the scores: hidden ones must stay below the visible by kVanishes.
double hides(DType dtype, double softcap) {
  if (softcap > 0) return kVanishes - 2 * softcap;  // all scores lie within the cap: proven
  // The contract for all other scores: none is as large as this. A number of float32's is whole
  // there, and two apart from the next; for float16 it is the lowest number of all.
  return dtype == DType::f16 ? -65504 : -0x1p25;
}

struct Scores {
  NodeId q = -1, k_transposed = -1;  // [..., S, d] and [..., d, S]
  double scale = 1, softcap = 0;
  Steps added = Steps::uniform(0);  // by masks, to the score of each distance of row and column
  // 1 where no mask has touched the score. What replaced it, or was added and taken away again,
  // says nothing of the score any more: such a distance must be hidden in the end.
  Steps intact = Steps::uniform(1);
  bool masked = false;
  bool shifted = false;        // by a number for each row, which a softmax does not see
  double shift = 0;            // how far at most, but for `lowered`; infinite if that is not known
  bool lowered = false;        // by the maximum of the row
  double weakest = -INFINITY;  // what hides under the assumption that scores are small
  bool viewed = false;         // so that heads are elsewhere than in q and k
  DType dtype = DType::f32;    // in which they are masked; float32 if in several
};

// 1 at the distances at which an op keeps probabilities and 0 where it makes them 0; nothing if it
// does anything else. The probabilities are its input `at`.
std::optional<Steps> kept_by(Prover& prover, const Graph& graph, NodeId id, std::size_t* at) {
  const Node& node = graph[id];
  const auto is_input = [&](std::size_t input) {
    *at = input;
    return graph.type(node.inputs[input]) == node.type;
  };
  const auto negated = [&](const Steps& steps) {
    return compute_steps(Op::equal, DType::f32, {steps, Steps::uniform(0)}, graph.limit.tokens);
  };
  if (node.op == Op::tril && is_input(0)) return Steps::from(-node.integer("diagonal"));
  if (node.op == Op::where)
    for (const std::size_t side : {1u, 2u}) {
      if (uniform_value(graph, node.inputs[3 - side]) != 0.0 || !is_input(side)) continue;
      const auto condition = prover.steps(node.inputs[0]);
      return condition && side == 2 ? negated(*condition) : condition;
    }
  if (node.op == Op::mul)
    for (const std::size_t side : {0u, 1u}) {
      const auto mask = prover.steps(node.inputs[1 - side]);
      if (!mask || !is_input(side)) continue;
      for (const Piece& piece : mask->pieces)
        if (piece.slope != 0 || (piece.value != 0 && piece.value != 1)) return std::nullopt;
      return mask;
    }
  return std::nullopt;
}

class Recogniser {
 public:
  Recogniser(Builder& out, const Graph& graph) : out_(out), graph_(graph), prover_(graph) {}

  // `node` is matmul(probabilities, v), where the probabilities are the softmax seen through views
  // and masks, the last of them first.
  NodeId attention(const Node& node, NodeId softmax, const std::vector<NodeId>& views,
                   const std::vector<NodeId>& masks) {
    const Node& probabilities = graph_[softmax];
    if (probabilities.integer("axis") != rank(softmax) - 1)
      refuse(softmax, "the softmax is not over the last axis");
    read(probabilities.inputs[0], 0);
    if (!scores_.masked) refuse(softmax, "nothing masks the tokens that come later");
    const std::int64_t window = window_of(softmax);
    for (const NodeId mask : masks) keeps_seen(mask, window);

    if (std::any_of(views.begin(), views.end(),
                    [&](NodeId view) { return graph_[view].op == Op::slice; }))
      take_heads(softmax, views);
    const Shape heads = leading(node.inputs[0]);
    if (product(leading(scores_.q)) != product(heads))
      refuse(softmax, "the mask or a view changes the number of heads");
    const NodeId v = node.inputs[1];
    const NodeId q3 = tokens_first(scores_.q, rank(scores_.q) - 2, leading(scores_.q));
    const DType dtype = out_.type(q3).dtype;
    const NodeId k3 =
        tokens_first(scores_.k_transposed, rank(scores_.k_transposed) - 1, leading(scores_.q));
    const NodeId v3 = tokens_first(v, rank(v) - 2, heads);
    const NodeId cast_k = out_.cast(k3, dtype), cast_v = out_.cast(v3, dtype);
    const auto [k, values] = same_heads(cast_k, cast_v, out_.type(q3).shape[1]);
    Attrs attrs{{"scale", scores_.scale}, {"window", window}, {"softcap", scores_.softcap}};
    if (std::isfinite(scores_.weakest)) attrs[kScoresWithin] = -scores_.weakest / kMaskOverScores;
    NodeId result = out_.add(Op::attention, {q3, k, values}, attrs);

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
  Shape leading(NodeId id) const {
    const Shape& shape = graph_.type(id).shape;
    return Shape(shape.begin(), shape.end() - 2);
  }

  [[noreturn]] void refuse(NodeId id, const std::string& why) const {
    bad_input("{}: attention that is not provably causal: {}", describe(graph_, id), why);
  }

  // ---- from the softmax down to q k^T ----

  void read(NodeId id, int depth) {
    if (depth > kDeepest) refuse(id, "too many ops stand between q k^T and the softmax");
    const Node& node = graph_[id];
    switch (node.op) {
      case Op::matmul:
        scores_.q = node.inputs[0];
        scores_.k_transposed = node.inputs[1];
        return;
      case Op::cast:
        if (!is_float(graph_.type(node.inputs[0]).dtype) || !is_float(node.type.dtype))
          refuse(id, fmt::format("the scores are converted to {}", torch_name(node.type.dtype)));
        return read(node.inputs[0], depth + 1);
      case Op::reshape:
      case Op::permute:
        if (!keeps_rows(graph_, id)) refuse(id, "a view of the scores moves their tokens");
        read(node.inputs[0], depth + 1);
        scores_.viewed = true;
        return;
      case Op::mul:
      case Op::div:
        return read_scaled(id, depth);
      case Op::add:
      case Op::sub:
        return read_additive_mask(id, depth);
      case Op::where:
        return read_where(id, depth);
      case Op::maximum:
        return read_floor(id, depth);
      default:
        refuse(id, "this op stands between q k^T and the softmax");
    }
  }

  void read_scaled(NodeId id, int depth) {
    const Op op = graph_[id].op;
    const auto scaled = match_scalar(graph_, id, op);
    if (!scaled) return read_product(id, depth);
    const double factor = op == Op::mul ? scaled->scalar : 1 / scaled->scalar;
    if (!std::isfinite(factor) || factor == 0)
      refuse(id, fmt::format("the scores are scaled by {}", factor));
    const NodeId inner = without_float_casts(graph_, scaled->x);
    if (graph_[inner].op == Op::tanh) return read_softcap(inner, factor, depth);
    read(scaled->x, depth + 1);
    if (scores_.softcap != 0) refuse(id, "the scores are scaled after they were capped");
    if (scores_.masked && factor < 0)
      refuse(id, "a negative factor turns masked scores into the largest");
    scores_.scale *= factor;
    scores_.shift *= std::fabs(factor);
    scores_.weakest *= std::fabs(factor);
    for (Piece& piece : scores_.added.pieces) piece.value *= factor;
  }

  // Scores times a mask of 0 and 1, or times a number for each head or row.
  void read_product(NodeId id, int depth) {
    const Node node = graph_[id];
    for (const std::size_t side : {1u, 0u}) {
      if (node.op == Op::div && side == 0) break;
      const NodeId x = node.inputs[1 - side], factor = node.inputs[side];
      const auto mask = node.op == Op::mul ? prover_.steps(factor) : std::nullopt;
      if (mask && std::all_of(mask->pieces.begin(), mask->pieces.end(), [](const Piece& piece) {
            return piece.slope == 0 && (piece.value == 0 || piece.value == 1);
          })) {
        read(x, depth + 1);
        return add_mask(id, combined(Op::mul, {scores_.added, *mask}),
                        combined(Op::where, {*mask, scores_.intact, Steps::uniform(0)}));
      }
      if (!is_one_a_row(factor) || graph_.type(x) != node.type) continue;
      read(x, depth + 1);
      if (scores_.masked || scores_.softcap != 0 || scores_.viewed ||
          std::isfinite(scores_.weakest))
        refuse(id, "the scores are scaled by a tensor after they were masked, capped or viewed");
      const NodeId q = out_.cast(scores_.q, node.type.dtype);
      scores_.q = out_.binary(node.op, q, factor);
      if (scores_.shifted) scores_.shift = INFINITY;
      return;
    }
    refuse(id, "the scores are scaled by a tensor");
  }

  // The same for all columns.
  bool is_one_a_row(NodeId id) const {
    const Shape& shape = graph_.type(id).shape;
    return shape.empty() || shape.back() == Dim(1);
  }

  // What is added to whole rows goes away in the softmax, if it is finite: the maximum of what it
  // is taken from, or a number that weights give each head. Nothing if it is neither.
  std::optional<Op> drops_out(NodeId id, NodeId added, NodeId x) const {
    if (graph_.type(x) != graph_.type(id) || !is_one_a_row(added)) return std::nullopt;
    NodeId most = added;
    while (graph_[most].op == Op::reshape || graph_[most].op == Op::expand)
      most = graph_[most].inputs[0];
    if (graph_[most].op == Op::amax && graph_[most].inputs[0] == x) {
      const auto& axes = graph_[most].integers("axes");
      if (std::find(axes.begin(), axes.end(), rank(x) - 1) != axes.end()) return Op::amax;
      return std::nullopt;
    }
    while (info(graph_[most].op).memory == Memory::view) most = graph_[most].inputs[0];
    return graph_[most].op == Op::weight ? std::optional(Op::weight) : std::nullopt;
  }

  void read_softcap(NodeId tanh, double cap, int depth) {
    const NodeId argument = without_float_casts(graph_, graph_[tanh].inputs[0]);
    const Op op = graph_[argument].op;
    const auto divided =
        op == Op::div || op == Op::mul ? match_scalar(graph_, argument, op) : std::nullopt;
    const bool matches =
        divided && ((op == Op::div && divided->scalar == cap) ||
                    (op == Op::mul && std::fabs(divided->scalar * cap - 1) < 1e-6));
    if (!matches || !(cap > 0)) refuse(tanh, "tanh of the scores is not c * tanh(scores / c)");
    read(divided->x, depth + 1);
    if (scores_.masked || scores_.softcap != 0 || scores_.shifted || std::isfinite(scores_.weakest))
      refuse(tanh, "the scores are capped after they were masked, shifted, cut off or capped");
    scores_.softcap = cap;
  }

  void read_additive_mask(NodeId id, int depth) {
    const Node& node = graph_[id];
    const bool subtracts = node.op == Op::sub;
    for (const int side : {1, 0}) {
      if (subtracts && side == 0) break;
      const NodeId mask = node.inputs[static_cast<std::size_t>(side)];
      auto steps = prover_.steps(mask);
      if (!steps) continue;
      if (subtracts) *steps = combined(Op::neg, {*steps});
      read(node.inputs[static_cast<std::size_t>(1 - side)], depth + 1);
      if (const auto shift = steps->uniform_value(); shift && std::fabs(*shift) <= kShift) {
        scores_.shifted = true;
        scores_.shift += std::fabs(*shift);
        return;
      }
      const Steps untouched = combined(Op::equal, {*steps, Steps::uniform(0)});
      return add_mask(id, combined(Op::add, {scores_.added, *steps}),
                      combined(Op::where, {untouched, scores_.intact, Steps::uniform(0)}));
    }
    for (const std::size_t side : {1u, 0u}) {
      if (subtracts && side == 0) break;
      const auto dropped = drops_out(id, node.inputs[side], node.inputs[1 - side]);
      if (!dropped) continue;
      read(node.inputs[1 - side], depth + 1);
      // One maximum is no larger than the largest score and what was added to it.
      if (*dropped != Op::amax || scores_.lowered) scores_.shift = INFINITY;
      const auto raises = [](const Piece& piece) { return piece.slope != 0 || piece.value > 0; };
      if (*dropped == Op::amax && std::ranges::any_of(scores_.added.pieces, raises))
        refuse(id, "the maximum is taken of scores that a mask has raised");
      scores_.lowered = true;
      scores_.shifted = true;
      return;
    }
    refuse_mask(id, node.inputs[1], node.inputs[0]);
  }

  void read_where(NodeId id, int depth) {
    const Node& node = graph_[id];
    const auto condition = prover_.steps(node.inputs[0]);
    if (!condition) refuse_mask(id, node.inputs[0], node.inputs[0]);
    for (const int side : {2, 1}) {
      const auto other = prover_.steps(node.inputs[static_cast<std::size_t>(side)]);
      if (!other) continue;
      read(node.inputs[static_cast<std::size_t>(3 - side)], depth + 1);
      const auto chosen = [&](const Steps& kept, const Steps& replaced) {
        return side == 2 ? combined(Op::where, {*condition, kept, replaced})
                         : combined(Op::where, {*condition, replaced, kept});
      };
      return add_mask(id, chosen(scores_.added, *other), chosen(scores_.intact, Steps::uniform(0)));
    }
    refuse(id, "where the mask chooses, neither side is a number for all heads and features");
  }

  // A floor so low that no score is below it, but for hidden ones, which stay hidden.
  void read_floor(NodeId id, int depth) {
    const auto floor = match_scalar(graph_, id, Op::maximum);
    if (!floor) refuse(id, "this op stands between q k^T and the softmax");
    read(floor->x, depth + 1);
    const double limit = hides(graph_[id].type.dtype, scores_.softcap);
    if (!(floor->scalar <= std::max(limit, kHidesSmall)))
      refuse(id, fmt::format("the scores are kept above {}, which may change them", floor->scalar));
    if (floor->scalar > limit) scores_.weakest = std::max(scores_.weakest, floor->scalar);
    scores_.added = combined(Op::maximum, {scores_.added, Steps::uniform(floor->scalar)});
  }

  // What is added to scores is followed in double: which numbers count as hidden is decided with
  // a wide margin, and 0 stays 0.
  Steps combined(Op op, const std::vector<Steps>& in) const {
    auto result = compute_steps(op, DType::f32, in, graph_.limit.tokens);
    if (!result) bad_input("an attention mask of too many pieces");
    return *result;
  }

  void add_mask(NodeId id, Steps added, Steps intact) {
    const DType dtype = graph_[id].type.dtype;
    scores_.dtype = !scores_.masked || scores_.dtype == dtype ? dtype : DType::f32;
    scores_.added = std::move(added);
    scores_.intact = std::move(intact);
    scores_.masked = true;
  }

  // The heads of q and k that views of the probabilities leave.
  void take_heads(NodeId softmax, const std::vector<NodeId>& views) {
    const Shape all = leading(softmax);
    const auto with = [](Shape heads, const Shape& like) {
      heads.insert(heads.end(), like.end() - 2, like.end());
      return heads;
    };
    const Shape own = leading(scores_.q);
    if (product(own) != product(all)) refuse(softmax, "the mask changes the number of heads");
    for (NodeId* x : {&scores_.q, &scores_.k_transposed}) {
      const Shape shape = out_.type(*x).shape;
      if (shape.size() != own.size() + 2) refuse(softmax, "q, k and v differ in rank");
      for (std::size_t i = 0; i < own.size(); ++i)
        if (shape[i] != own[i] && shape[i] != Dim(1))
          refuse(softmax, "heads of q, k and v do not match");
      *x = out_.reshape(out_.expand(*x, with(own, shape)), with(all, shape));
      for (std::size_t i = views.size(); i-- > 0;) {
        const Node view = graph_[views[i]];
        if (view.op == Op::slice)
          *x = out_.slice(*x, view.integer("axis"), view.dim("start"), view.dim("end"),
                          view.integer("step"));
        else if (view.op != Op::cast)
          *x = out_.reshape(*x, with(leading(views[i]), shape));
      }
    }
  }

  // ---- what the masks let through ----

  std::int64_t window_of(NodeId id) {
    const double limit = hides(scores_.dtype, scores_.softcap);
    const std::int64_t far = graph_.limit.tokens - 1;
    // Calls `look` for each piece that some length reaches.
    const auto for_pieces = [&](const Steps& steps, auto look) {
      for (std::size_t i = 0; i < steps.pieces.size(); ++i) {
        const std::int64_t first = std::max(steps.pieces[i].start, -far),
                           last = std::min(steps.end(i) - 1, far);
        if (first <= last) look(steps.pieces[i], first, last);
      }
    };
    const Steps touched =
        combined(Op::where, {scores_.intact, Steps::uniform(-INFINITY), scores_.added});
    for_pieces(touched, [&](const Piece& piece, std::int64_t, std::int64_t) {
      if (piece.slope != 0)
        refuse(id, "a bias that depends on the distance of tokens (ALiBi) is not supported");
      if (piece.value <= limit) return;
      if (!(piece.value <= kHidesSmall)) refuse_value(id, piece.value);
      scores_.weakest = std::max(scores_.weakest, piece.value);
    });
    if (std::isfinite(scores_.weakest) &&
        !(scores_.weakest <= kHidesSmall && scores_.shift * kShareOfShift <= -scores_.weakest))
      refuse_value(id, scores_.weakest);
    std::optional<std::int64_t> low, high;  // the distances that are seen
    for_pieces(scores_.intact, [&](const Piece& piece, std::int64_t first, std::int64_t last) {
      if (piece.value == 0) return;
      if (high && *high != first - 1) refuse(id, "the mask hides tokens in the middle");
      if (!low) low = first;
      high = last;
    });
    if (!low) refuse(id, "the mask hides everything");
    if (*low < 0)
      refuse(id, *low == -far && *high == far ? "nothing masks the tokens that come later"
                                              : "a token sees tokens that come later");
    if (*low > 0) refuse(id, "a token does not see itself");
    return *high == far ? 0 : *high + 1;
  }

  // A mask of the probabilities may only take away those that are 0 already.
  void keeps_seen(NodeId id, std::int64_t window) {
    std::size_t input = 0;
    const auto kept = kept_by(prover_, graph_, id, &input);
    const std::int64_t last = window > 0 ? window - 1 : graph_.limit.tokens - 1;
    for (std::size_t i = 0; i < kept->pieces.size(); ++i) {
      const Piece& piece = kept->pieces[i];
      if (piece.start <= last && kept->end(i) > 0 && piece.value != 1)
        refuse(id, "a mask after the softmax takes away tokens that are seen");
    }
  }

  [[noreturn]] void refuse_value(NodeId id, double value) const {
    if (!(value <= -100))  // NaN too
      refuse(id, fmt::format("the mask adds {} to scores, or puts it in their place, which neither "
                             "hides nor keeps them; a bias is not supported",
                             value));
    refuse(id, fmt::format("the mask hides tokens with {}, which scores can outweigh ({} hides, if "
                           "scores are small and nothing else is added to them): use -inf or "
                           "torch.finfo(dtype).min",
                           value, kHidesSmall));
  }

  // The mask is no function of row - column: says what it is instead.
  [[noreturn]] void refuse_mask(NodeId id, NodeId mask, NodeId other) const {
    const Dim S(Symbol::S);
    for (const NodeId side : {mask, other}) {
      std::vector<NodeId> open{side};
      std::vector<bool> seen(graph_.nodes.size());
      bool weights = false, ids = false, scores = false;
      while (!open.empty()) {
        const NodeId next = open.back();
        open.pop_back();
        if (seen[static_cast<std::size_t>(next)]) continue;
        seen[static_cast<std::size_t>(next)] = true;
        const Op op = graph_[next].op;
        weights = weights || op == Op::weight;
        ids = ids || op == Op::input;
        scores = scores || op == Op::matmul;
        open.insert(open.end(), graph_[next].inputs.begin(), graph_[next].inputs.end());
      }
      if (scores && side != other) continue;  // that is q k^T
      if (ids) refuse(id, "the mask depends on the tokens, not on their positions alone");
      if (weights)
        refuse(id, "a learned bias, or a mask that is stored as weights, is added to the scores");
      refuse(id,
             "the mask is not a function of the distance between tokens for every head (ALiBi, "
             "prefixes and blocks are not supported), or not exact in its dtype");
    }
    refuse(id, "the mask depends on more than positions");
  }

  // ---- the result ----

  // x with its token axis moved to the front and its leading axes merged into heads: [S, h, d].
  // Leading axes of size 1 may broadcast against `wanted`. If they are innermost, those are grouped
  // heads; else they are repeated.
  NodeId tokens_first(NodeId x, std::int64_t token_axis, const Shape& wanted) {
    Shape shape = graph_.type(x).shape;
    if (shape.size() != wanted.size() + 2) refuse(x, "q, k and v differ in rank");
    bool broadcasting = false, is_grouped = true;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (shape[i] != wanted[i]) broadcasting = true;
      if (shape[i] != wanted[i] && shape[i] != Dim(1))
        refuse(x, "heads of q, k and v do not match");
      is_grouped = is_grouped && (!broadcasting || shape[i] == Dim(1));
    }
    if (!is_grouped) {
      std::copy(wanted.begin(), wanted.end(), shape.begin());
      x = out_.expand(x, shape);
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

  // Keys and values with as many heads as the other of the two: each is repeated for its group.
  std::pair<NodeId, NodeId> same_heads(NodeId k, NodeId v, const Dim& q_heads) {
    const auto repeated = [&](NodeId x) {
      const Shape shape = out_.type(x).shape;
      const auto group = q_heads.divided_by(shape[1]);
      if (!group) return x;
      const NodeId wide = out_.expand(out_.reshape(x, {shape[0], shape[1], 1, shape[2]}),
                                      {shape[0], shape[1], *group, shape[2]});
      return out_.reshape(wide, {shape[0], q_heads, shape[2]});
    };
    if (out_.type(k).shape[1] == out_.type(v).shape[1]) return {k, v};
    return {repeated(k), repeated(v)};
  }

  Builder& out_;
  const Graph& graph_;
  Prover prover_;
  Scores scores_;
};

std::optional<NodeId> recognise(Builder& out, const Graph& graph, const Node& node) {
  if (node.op != Op::matmul) return std::nullopt;
  const Dim S(Symbol::S);
  // Views between the softmax and this product that leave rows and columns where they are.
  NodeId softmax = node.inputs[0];
  if (!graph.type(softmax).shape.back().uses(Symbol::S)) return std::nullopt;
  std::vector<NodeId> views, masks;
  Prover prover(graph);
  for (;;) {
    const Node& view = graph[softmax];
    std::size_t masked = 0;
    if (view.op != Op::softmax && is_float(view.type.dtype) &&
        kept_by(prover, graph, softmax, &masked)) {
      masks.push_back(softmax);
      softmax = view.inputs[masked];
      continue;
    }
    const bool is_view =
        view.op == Op::cast ? without_float_casts(graph, softmax) != softmax
        : view.op == Op::slice
            ? view.integer("axis") + 2 < static_cast<std::int64_t>(view.type.shape.size())
            : (view.op == Op::reshape || view.op == Op::permute) && keeps_rows(graph, softmax);
    if (!is_view) break;
    views.push_back(softmax);
    softmax = view.inputs[0];
  }
  const Shape& shape = graph.type(softmax).shape;
  if (graph[softmax].op != Op::softmax || shape.size() < 2 || shape.back() != S ||
      shape[shape.size() - 2] != S)
    return std::nullopt;
  return Recogniser(out, graph).attention(node, softmax, views, masks);
}

}  // namespace

Graph recognise_attention(const Graph& graph) { return rewrite(graph, {recognise}); }

}  // namespace ac
