// Every value that depends on tokens gets the token axis first and loses its axes of size 1. An
// axis is recognised by its size: S is a symbol, and no other axis has it.
#include <algorithm>

#include "base/error.h"
#include "ir/normalise/match.h"
#include "ir/normalise/passes.h"

namespace ac {
namespace {

const Dim kTokens(Symbol::S);

// How an old value is stored in the new graph: axis i of the new node is the old axis axes[i]. Old
// axes that are not listed have size 1. Values without S are stored as they were.
struct Stored {
  NodeId node;
  std::vector<std::size_t> axes;
};

class Mover {
 public:
  explicit Mover(const Graph& graph)
      : in_(graph), out_{graph.name, {}, {}, graph.limit}, builder_(out_) {}

  Graph run() {
    for (std::size_t i = 0; i < in_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      builder_.set_origin(in_[id]);
      stored_.push_back(move(id));
    }
    for (const Output& output : in_.outputs)
      out_.outputs.push_back({output.name, arrange(output.node, all_axes(output.node))});
    return std::move(out_);
  }

 private:
  using Axes = std::vector<std::size_t>;

  const Shape& shape(NodeId id) const { return in_.type(id).shape; }
  std::size_t rank(NodeId id) const { return shape(id).size(); }
  bool has_tokens(NodeId id) const { return uses_tokens(in_.type(id)); }
  Axes all_axes(NodeId id) const {
    Axes axes(rank(id));
    for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = i;
    return axes;
  }

  [[noreturn]] void refuse(NodeId id, const std::string& why) const {
    bad_input("{}: {}; a decoder may couple tokens only by causal attention", describe(in_, id),
              why);
  }

  // The one axis of size S. Sizes such as 2*S mix tokens with something else.
  std::size_t token_axis(NodeId id) const {
    std::size_t found = rank(id);
    for (std::size_t i = 0; i < rank(id); ++i) {
      if (!shape(id)[i].uses(Symbol::S)) continue;
      if (shape(id)[i] != kTokens)
        refuse(id, fmt::format("an axis of size {} mixes tokens", shape(id)[i].str()));
      if (found != rank(id)) refuse(id, "two axes are tokens");
      found = i;
    }
    AC_ASSERT(found != rank(id));
    return found;
  }

  // The normal order: tokens, then the other axes whose size is not 1.
  Axes normal_axes(NodeId id) const {
    if (!has_tokens(id)) return all_axes(id);
    Axes axes{token_axis(id)};
    for (std::size_t i = 0; i < rank(id); ++i)
      if (i != axes[0] && shape(id)[i] != Dim(1)) axes.push_back(i);
    return axes;
  }

  // The value with exactly these old axes, in this order. Axes left out must have size 1.
  NodeId arrange(NodeId id, const Axes& wanted) {
    const Stored& stored = stored_[static_cast<std::size_t>(id)];
    std::vector<std::int64_t> order;
    Axes left;
    for (const std::size_t axis : wanted) {
      const auto at = std::find(stored.axes.begin(), stored.axes.end(), axis);
      if (at == stored.axes.end()) continue;
      order.push_back(at - stored.axes.begin());
      left.push_back(axis);
    }
    NodeId node = stored.node;
    // Stored axes that nobody wants have size 1: a reshape drops them.
    for (std::size_t i = 0; i < stored.axes.size(); ++i)
      if (std::find(wanted.begin(), wanted.end(), stored.axes[i]) == wanted.end())
        order.push_back(static_cast<std::int64_t>(i));
    node = builder_.permute(node, order);
    Shape sizes;
    for (const std::size_t axis : wanted) sizes.push_back(shape(id)[axis]);
    return builder_.reshape(node, sizes);
  }

  Stored normal(NodeId id, NodeId node, const Axes& axes) {
    // Stores a new node whose axes are `axes`, some of which may have size 1.
    stored_.push_back({node, axes});
    const Axes wanted = normal_axes(id);
    const NodeId arranged = arrange(id, wanted);
    stored_.pop_back();
    return {arranged, wanted};
  }

  Stored move(NodeId id) {
    const Node& node = in_[id];
    const bool any_tokens =
        has_tokens(id) || std::any_of(node.inputs.begin(), node.inputs.end(),
                                      [&](NodeId input) { return has_tokens(input); });
    if (!any_tokens) {
      if (node.op == Op::slice && node.dim("start").uses(Symbol::S))
        refuse(id, "which entries it takes depends on the number of tokens");
      std::vector<NodeId> inputs;
      for (const NodeId input : node.inputs)
        inputs.push_back(stored_[static_cast<std::size_t>(input)].node);
      return {copy_node(out_, node, inputs), all_axes(id)};
    }
    if (info(node.op).over == Over::each) return elementwise(id);
    switch (info(node.op).rule) {
      case ShapeRule::declared:
      case ShapeRule::positions:
        return normal(id, copy_node(out_, node, {}), all_axes(id));
      case ShapeRule::reduce:
        return reduce(id);
      case ShapeRule::softmax:
        return softmax(id);
      case ShapeRule::norm:
      case ShapeRule::linear:
        return over_last_axis(id);
      case ShapeRule::matmul:
        return matmul(id);
      case ShapeRule::embedding:
        return embedding(id);
      case ShapeRule::rope: {
        const NodeId x = node.inputs[0];
        const NodeId arranged = arrange(x, normal_axes(x));
        return {builder_.add(node.op,
                             {arranged, arrange(node.inputs[1], {0}), arrange(node.inputs[2], {0})},
                             node.attrs),
                normal_axes(id)};
      }
      case ShapeRule::attention: {
        std::vector<NodeId> inputs;
        for (const NodeId input : node.inputs) inputs.push_back(arrange(input, all_axes(input)));
        return normal(id, builder_.add(node.op, inputs, node.attrs), all_axes(id));
      }
      case ShapeRule::reshape:
        return reshape(id);
      case ShapeRule::permute:
        return permute(id);
      case ShapeRule::expand:
        return expand(id);
      case ShapeRule::slice:
        return slice(id);
      case ShapeRule::concat:
        return concat(id);
      case ShapeRule::triangle:
        refuse(id, "a triangle over tokens is not part of an attention mask");
      default:
        break;
    }
    AC_UNREACHABLE();
  }

  Stored elementwise(NodeId id) {
    const Node& node = in_[id];
    const Axes axes = normal_axes(id);
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs) {
      const std::size_t missing = rank(id) - rank(input);
      if (!has_tokens(input) && product(shape(input)) == Dim(1)) {
        inputs.push_back(arrange(input, {}));
        continue;
      }
      // The axes of the result as this input has them; where it has none, broadcasting adds it.
      Shape sizes;
      Axes own;
      for (const std::size_t axis : axes) {
        const bool present = axis >= missing && shape(input)[axis - missing] != Dim(1);
        if (present) own.push_back(axis - missing);
        if (present || !sizes.empty())
          sizes.push_back(present ? shape(input)[axis - missing] : Dim(1));
      }
      inputs.push_back(builder_.reshape(arrange(input, own), sizes));
    }
    NodeId result = builder_.add(node.op, inputs, node.attrs);
    // Only when an input without tokens decides an axis can the result lack one.
    Shape sizes;
    for (const std::size_t axis : axes) sizes.push_back(shape(id)[axis]);
    return {builder_.expand(result, sizes), axes};
  }

  Stored reduce(NodeId id) {
    const Node& node = in_[id];
    const NodeId x = node.inputs[0];
    const std::size_t tokens = token_axis(x);
    const Axes axes = normal_axes(x);
    std::vector<bool> reduced(rank(x));
    for (const std::int64_t axis : node.integers("axes"))
      reduced[static_cast<std::size_t>(axis)] = true;
    if (reduced[tokens]) refuse(id, "it reduces over tokens");
    std::vector<std::int64_t> new_axes;
    Axes left;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (reduced[axes[i]]) {
        new_axes.push_back(static_cast<std::int64_t>(i));
        continue;
      }
      const auto before =
          std::count(reduced.begin(), reduced.begin() + static_cast<long>(axes[i]), true);
      left.push_back(node.flag("keep") ? axes[i] : axes[i] - static_cast<std::size_t>(before));
    }
    const NodeId arranged = arrange(x, axes);
    return {new_axes.empty() ? arranged : builder_.reduce(node.op, arranged, new_axes, false),
            left};
  }

  Stored softmax(NodeId id) {
    const NodeId x = in_[id].inputs[0];
    const auto axis = static_cast<std::size_t>(in_[id].integer("axis"));
    if (axis == token_axis(x)) refuse(id, "it normalises over tokens");
    Axes axes = normal_axes(x);
    auto at = std::find(axes.begin(), axes.end(), axis);
    if (at == axes.end()) at = axes.insert(axes.end(), axis);
    return normal(id, builder_.softmax(arrange(x, axes), at - axes.begin()), axes);
  }

  // Norms and projections: the last axis is theirs, the others are rows.
  Stored over_last_axis(NodeId id) {
    const Node& node = in_[id];
    const NodeId x = node.inputs[0];
    const std::size_t last = rank(x) - 1;
    if (token_axis(x) == last) refuse(id, "it mixes the token axis");
    std::vector<NodeId> inputs;
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      if (has_tokens(node.inputs[i])) refuse(id, "its weight depends on tokens");
      inputs.push_back(arrange(node.inputs[i], all_axes(node.inputs[i])));
    }
    Axes axes = normal_axes(x);
    if (axes.back() != last) axes.push_back(last);
    inputs.insert(inputs.begin(), arrange(x, axes));
    return normal(id, builder_.add(node.op, inputs, node.attrs), axes);
  }

  Stored matmul(NodeId id) {
    const Node& node = in_[id];
    const NodeId a = node.inputs[0], b = node.inputs[1];
    if (has_tokens(a) && has_tokens(b)) return matmul_of_each_token(id);
    if (!has_tokens(a)) refuse(id, "the tokens are on its right-hand side");
    const std::size_t last = rank(a) - 1;
    if (token_axis(a) == last) refuse(id, "it sums over tokens");
    Axes matrix = all_axes(b), stack;
    for (; matrix.size() > 2; matrix.erase(matrix.begin()))
      if (shape(b)[matrix[0]] != Dim(1)) stack.push_back(matrix[0]);
    if (stack.size() > 1) refuse(id, "the right-hand side is a stack of stacks of matrices");
    if (!stack.empty()) return matmul_of_each_head(id, stack[0], matrix);
    Axes axes = normal_axes(a);
    if (axes.back() != last) axes.push_back(last);
    const std::size_t shift = rank(id) - rank(a);
    const NodeId product = builder_.matmul(arrange(a, axes), arrange(b, matrix));
    for (std::size_t& axis : axes) axis += shift;
    return normal(id, product, axes);
  }

  // b is a stack of matrices along an axis: each is multiplied by itself, as no op has several.
  Stored matmul_of_each_head(NodeId id, std::size_t heads, const Axes& matrix) {
    constexpr std::int64_t kMostHeads = 256;
    const NodeId a = in_[id].inputs[0], b = in_[id].inputs[1];
    const Dim count = shape(b)[heads];
    if (!count.is_constant() || count.constant() > kMostHeads)
      refuse(id, fmt::format("the right-hand side is a stack of {} matrices", count.str()));
    const std::size_t shift = rank(id) - rank(a), axis = heads + rank(id) - rank(b);
    const bool has_heads = axis >= shift && shape(a)[axis - shift] == count;
    Axes axes = normal_axes(a);
    if (axes.back() != rank(a) - 1) axes.push_back(rank(a) - 1);
    const NodeId rows = arrange(a, axes);
    std::int64_t at = 1;  // of the heads in each product
    if (has_heads) at = std::find(axes.begin(), axes.end(), axis - shift) - axes.begin();
    const NodeId matrices = arrange(b, {heads, matrix[0], matrix[1]});
    for (std::size_t& each : axes) each += shift;
    if (!has_heads) axes.insert(axes.begin() + 1, axis);
    Shape sizes;
    for (const std::size_t each : axes) sizes.push_back(each == axis ? Dim(1) : shape(id)[each]);
    std::vector<NodeId> parts;
    for (std::int64_t i = 0; i < count.constant(); ++i) {
      const NodeId own = builder_.slice(matrices, 0, i, i + 1);
      const Shape size{shape(b)[matrix[0]], shape(b)[matrix[1]]};
      const NodeId left = has_heads ? builder_.slice(rows, at, i, i + 1) : rows;
      parts.push_back(builder_.reshape(builder_.matmul(left, builder_.reshape(own, size)), sizes));
    }
    return normal(id, builder_.concat(parts, at), axes);
  }

  // A stack of products, one a token: each is written out, as no op has a matrix for each row.
  Stored matmul_of_each_token(NodeId id) {
    const NodeId a = in_[id].inputs[0], b = in_[id].inputs[1];
    const std::size_t all = rank(id), tokens_a = token_axis(a) + all - rank(a),
                      tokens_b = token_axis(b) + all - rank(b);
    if (tokens_a != tokens_b || tokens_a + 2 >= all) refuse(id, "it multiplies tokens by tokens");
    // Axes of the result, and one behind them for what is summed.
    const auto factor = [&](NodeId x, bool is_left) {
      const std::size_t missing = all - rank(x);
      Axes own;
      Shape sizes;
      const auto take = [&](std::size_t axis, const Dim& size) {
        if (size != Dim(1)) own.push_back(axis);
        sizes.push_back(size);
      };
      take(tokens_a - missing, kTokens);
      for (std::size_t i = 0; i + 2 < all; ++i) {
        if (i == tokens_a) continue;
        if (i < missing)
          sizes.emplace_back(1);
        else
          take(i - missing, shape(x)[i - missing]);
      }
      const std::size_t rows = rank(x) - 2, columns = rank(x) - 1;
      if (is_left) {
        take(rows, shape(x)[rows]);
        sizes.emplace_back(1);
        take(columns, shape(x)[columns]);
        return builder_.reshape(arrange(x, own), sizes);
      }
      sizes.emplace_back(1);
      own.push_back(columns);
      own.push_back(rows);
      sizes.push_back(shape(x)[columns]);
      sizes.push_back(shape(x)[rows]);
      return builder_.reshape(arrange(x, own), sizes);
    };
    const auto wide = [&](NodeId x) { return builder_.cast(x, DType::f32); };
    const NodeId terms = builder_.binary(Op::mul, wide(factor(a, true)), wide(factor(b, false)));
    Axes axes{tokens_a};
    for (std::size_t i = 0; i < all; ++i)
      if (i != tokens_a) axes.push_back(i);
    const auto last = static_cast<std::int64_t>(all);
    const NodeId sum = builder_.reduce(Op::sum, terms, {last}, false);
    return normal(id, builder_.cast(sum, in_.type(id).dtype), axes);
  }

  Stored embedding(NodeId id) {
    const NodeId table = in_[id].inputs[0], ids = in_[id].inputs[1];
    if (has_tokens(table)) refuse(id, "it looks up tokens among tokens");
    Axes axes = normal_axes(ids);
    const NodeId rows = builder_.embedding(arrange(table, all_axes(table)), arrange(ids, axes));
    for (std::size_t i = rank(ids); i < rank(id); ++i) axes.push_back(i);
    return normal(id, rows, axes);
  }

  Stored reshape(NodeId id) {
    const NodeId x = in_[id].inputs[0];
    const std::size_t from = token_axis(x), to = token_axis(id);
    const Shape &before = shape(x), &after = shape(id);
    const auto leading = [](const Shape& sizes, std::size_t axis) {
      return product(Shape(sizes.begin(), sizes.begin() + static_cast<long>(axis)));
    };
    if (leading(before, from) != leading(after, to))
      refuse(id,
             fmt::format("reshaping {} to {} mixes tokens", to_string(before), to_string(after)));
    const NodeId arranged = arrange(x, normal_axes(x));
    const Axes axes = normal_axes(id);
    Shape sizes;
    for (const std::size_t axis : axes) sizes.push_back(after[axis]);
    return {builder_.reshape(arranged, sizes), axes};
  }

  Stored permute(NodeId id) {
    const auto& order = in_[id].integers("axes");
    Stored result = stored_[static_cast<std::size_t>(in_[id].inputs[0])];
    for (std::size_t& axis : result.axes)
      axis = static_cast<std::size_t>(
          std::find(order.begin(), order.end(), static_cast<std::int64_t>(axis)) - order.begin());
    // Heads and features may have changed places; the normal order is that of the new axes.
    stored_.push_back(result);
    const Axes wanted = normal_axes(id);
    result.node = arrange(id, wanted);
    stored_.pop_back();
    return {result.node, wanted};
  }

  Stored expand(NodeId id) {
    const NodeId x = in_[id].inputs[0];
    const std::size_t missing = rank(id) - rank(x);
    const Axes axes = normal_axes(id);
    Axes own;
    Shape narrow, wide;
    for (const std::size_t axis : axes) {
      wide.push_back(shape(id)[axis]);
      const bool present = axis >= missing && shape(x)[axis - missing] != Dim(1);
      if (present) own.push_back(axis - missing);
      narrow.push_back(present ? shape(x)[axis - missing] : Dim(1));
    }
    return {builder_.expand(builder_.reshape(arrange(x, own), narrow), wide), axes};
  }

  Stored slice(NodeId id) {
    const Node& node = in_[id];
    const NodeId x = node.inputs[0];
    const auto axis = static_cast<std::size_t>(node.integer("axis"));
    if (!has_tokens(x)) return rows_at_positions(id, x, axis);
    const std::size_t tokens = token_axis(x);
    if (axis == tokens)
      refuse(id,
             fmt::format("it takes the tokens {}:{} of {}; return the logits of all tokens",
                         node.dim("start").str(), node.dim("end").str(), shape(x)[tokens].str()));
    Axes axes = normal_axes(x);
    auto at = std::find(axes.begin(), axes.end(), axis);
    if (at == axes.end()) at = axes.insert(axes.end(), axis);
    return normal(id,
                  builder_.slice(arrange(x, axes), at - axes.begin(), node.dim("start"),
                                 node.dim("end"), node.integer("step")),
                  axes);
  }

  // table[start : start + S] is what a table holds for the positions of these tokens.
  Stored rows_at_positions(NodeId id, NodeId table, std::size_t axis) {
    const Node& node = in_[id];
    if (node.dim("end") - node.dim("start") != kTokens || !node.dim("start").is_constant())
      refuse(id, "a slice of a constant by a length that is not S");
    Axes axes{axis};
    for (std::size_t i = 0; i < rank(table); ++i)
      if (i != axis) axes.push_back(i);
    NodeId positions = builder_.positions(kTokens);
    if (const auto start = node.dim("start").constant(); start != 0)
      positions = builder_.binary(Op::add, positions,
                                  builder_.scalar(DType::i64, static_cast<double>(start)));
    return normal(id, builder_.embedding(arrange(table, axes), positions), axes);
  }

  Stored concat(NodeId id) {
    const Node& node = in_[id];
    const auto axis = static_cast<std::size_t>(node.integer("axis"));
    if (axis == token_axis(id)) refuse(id, "it concatenates along tokens");
    Axes axes = normal_axes(id);
    std::vector<NodeId> parts;
    for (const NodeId part : node.inputs) parts.push_back(arrange(part, axes));
    const auto at = std::find(axes.begin(), axes.end(), axis) - axes.begin();
    return {builder_.concat(parts, at), axes};
  }

  const Graph& in_;
  Graph out_;
  Builder builder_;
  std::vector<Stored> stored_;
};

}  // namespace

Graph put_tokens_first(const Graph& graph) { return Mover(graph).run(); }

}  // namespace ac
