#include "analyze/grouping.h"

#include <algorithm>
#include <climits>
#include <queue>
#include <set>

#include "analyze/legality.h"
#include "base/error.h"
#include "ir/shape.h"

namespace ac {
namespace {

enum class Kind { rowwise, matrix, alone };

Kind kind_of(Op op) {
  if (is_matrix(op)) return Kind::matrix;
  switch (info(op).rule) {
    case ShapeRule::unary:
    case ShapeRule::binary:
    case ShapeRule::reduce:
    case ShapeRule::softmax:
    case ShapeRule::norm:
    case ShapeRule::rope:
      return Kind::rowwise;
    default:
      return Kind::alone;
  }
}

// The rows that row-wise ops walk over: one shape, and the axes that belong to one row.
struct Rows {
  Shape shape;
  std::vector<std::int64_t> axes;  // sorted; empty: any
};

Rows rows_of(const Graph& graph, const Node& node) {
  const Shape& shape = graph.type(node.inputs[0]).shape;
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  switch (info(node.op).rule) {
    case ShapeRule::reduce: {
      std::vector<std::int64_t> axes = node.integers("axes");
      std::sort(axes.begin(), axes.end());
      return {shape, axes};
    }
    case ShapeRule::softmax:
      return {shape, {node.integer("axis")}};
    case ShapeRule::norm:
    case ShapeRule::rope:
      return {shape, {last}};
    default:
      return {node.type.shape, {}};
  }
}

// Whether a value of this shape has one element for each of the rows, or for each of their
// elements.
bool fits(const Shape& shape, const Rows& rows) {
  if (broadcast(shape, rows.shape) == rows.shape) return true;
  Shape reduced;
  for (std::size_t i = 0; i < rows.shape.size(); ++i)
    if (std::find(rows.axes.begin(), rows.axes.end(), static_cast<std::int64_t>(i)) ==
        rows.axes.end())
      reduced.push_back(rows.shape[i]);
  return !rows.axes.empty() && shape == reduced;
}

// The rows of both, or why there are none.
std::variant<Rows, Reason> join(const Rows& a, const Rows& b) {
  if (!a.axes.empty() && !b.axes.empty()) {
    if (a.shape != b.shape) return Reason::shape;
    if (a.axes != b.axes) return Reason::reduction_axes;
    return a;
  }
  if (b.axes.empty() && fits(b.shape, a)) return a;
  if (a.axes.empty() && fits(a.shape, b)) return b;
  return Reason::shape;
}

class Grouper {
 public:
  explicit Grouper(const UseDef& uses)
      : uses_(uses), graph_(uses.graph()), home_(graph_.nodes.size(), -1) {}

  std::vector<Group> run() {
    for (const NodeId id : uses_.order())
      if (is_compute(graph_[id])) place(id);
    return in_order();
  }

 private:
  struct Part {
    Kind kind = Kind::alone;
    std::vector<NodeId> nodes;  // in order
    int first = 0, last = 0;    // their positions
    Rows rows;                  // of row-wise ops
    bool has_side = false;      // an epilogue reads a tensor besides
    std::vector<Boundary> boundaries;
  };

  int home(NodeId id) const { return home_[static_cast<std::size_t>(id)]; }
  Part& part(int index) { return parts_[static_cast<std::size_t>(index)]; }

  Boundary edge(Reason reason, NodeId from, NodeId to, const char* why) const {
    return {reason, from, to,
            fmt::format("{} after {}: {}", describe(graph_, to), describe(graph_, from), why)};
  }

  // The parts that `id` reads from.
  std::set<int> sources(NodeId id) const {
    std::set<int> found;
    for (const NodeId operand : uses_.operands(id))
      if (home(operand) >= 0) found.insert(home(operand));
    return found;
  }

  // Whether the parts, and a new node that reads `pending`, would need themselves through a third.
  bool would_cycle(const std::set<int>& merged, const std::set<int>& pending) {
    std::vector<int> stack;
    std::set<int> seen;
    int first = INT_MAX;
    for (const int index : merged) first = std::min(first, part(index).first);
    const auto need = [&](const std::set<int>& needed) {
      for (const int index : needed)  // what ends before they begin cannot need them
        if (part(index).last > first && seen.insert(index).second) stack.push_back(index);
    };
    const auto outside = [&](std::set<int> needed) {
      for (const int index : merged) needed.erase(index);
      return needed;
    };
    need(outside(pending));
    if (merged.size() > 1)  // one part by itself does not need itself
      for (const int index : merged)
        for (const NodeId id : part(index).nodes) need(outside(sources(id)));
    while (!stack.empty()) {
      const int index = stack.back();
      stack.pop_back();
      for (const NodeId id : part(index).nodes)
        for (const int source : sources(id)) {
          if (merged.count(source) > 0) return true;
          need({source});
        }
    }
    return false;
  }

  void place(NodeId id) {
    std::vector<Boundary> boundaries;
    if (auto hard = hard_boundary(graph_, id)) boundaries.push_back(*hard);
    if (info(graph_[id].op).memory == Memory::state)
      boundaries.push_back({Reason::state, id, id, describe(graph_, id) + ": writes a cache"});

    // Products first, the last one first of all: what else an epilogue needs is ready by then.
    std::vector<NodeId> producers;
    for (const NodeId operand : uses_.operands(id))
      if (home(operand) >= 0) producers.push_back(operand);
    const auto product_first = [&](NodeId a, NodeId b) {
      const bool a_first = part(home(a)).kind == Kind::matrix;
      const bool b_first = part(home(b)).kind == Kind::matrix;
      if (a_first != b_first) return a_first;
      return a_first && uses_.position(a) > uses_.position(b);
    };
    std::stable_sort(producers.begin(), producers.end(), product_first);

    int joined = -1;
    for (const NodeId producer : producers) {
      if (home(producer) == joined) continue;
      auto boundary = hard_edge(uses_, producer, id);
      if (!boundary) boundary = try_join(producer, id, joined);
      if (boundary) boundaries.push_back(*boundary);
    }
    if (joined < 0) {
      joined = static_cast<int>(parts_.size());
      Part fresh;
      fresh.kind = kind_of(graph_[id].op);
      fresh.first = uses_.position(id);
      if (fresh.kind == Kind::rowwise) fresh.rows = rows_of(graph_, graph_[id]);
      parts_.push_back(std::move(fresh));
    }
    home_[static_cast<std::size_t>(id)] = joined;
    Part& chosen = part(joined);
    chosen.nodes.push_back(id);
    chosen.last = uses_.position(id);
    chosen.boundaries.insert(chosen.boundaries.end(), boundaries.begin(), boundaries.end());
  }

  // Puts `id` with its producer (and with the part that it joined before), or says why not.
  std::optional<Boundary> try_join(NodeId producer, NodeId id, int& joined) {
    const Kind from = part(home(producer)).kind, to = kind_of(graph_[id].op);
    if (to == Kind::alone)
      return edge(Reason::stands_alone, producer, id, "gathers, copies and attention stand alone");
    if (to == Kind::matrix)
      return edge(Reason::stands_alone, producer, id, "a product starts a region");
    if (from == Kind::alone)
      return edge(Reason::stands_alone, producer, id, "gathers, copies and attention stand alone");
    if (from == Kind::matrix) return try_epilogue(producer, id, joined);
    return try_rows(producer, id, joined);
  }

  std::optional<Boundary> try_epilogue(NodeId producer, NodeId id, int& joined) {
    const Node& node = graph_[id];
    Part& target = part(home(producer));
    if (joined >= 0)
      return edge(Reason::side_input, producer, id, "already the epilogue of another product");
    if (!is_pointwise(node.op))
      return edge(Reason::stands_alone, producer, id, "only element-wise ops follow a product");
    if (uses_.users(producer).size() > 1 || uses_.is_output(producer))
      return edge(Reason::several_uses, producer, id, "others use the product too");
    bool side = false;
    for (const NodeId input : node.inputs) {
      if (input == producer) continue;
      if (storage_of(graph_, input) == producer)
        return edge(Reason::layout, producer, id, "a view lies in between");
      side = side || !is_leaf_vector(input);
    }
    if (graph_.type(producer) != node.type)
      return edge(Reason::shape, producer, id, "the product is broadcast");
    if (side && target.has_side)
      return edge(Reason::side_input, producer, id, "a second tensor besides the product");
    if (would_cycle({home(producer)}, sources(id)))
      return edge(Reason::order, producer, id, "another operand needs the product's region");
    target.has_side = target.has_side || side;
    joined = home(producer);
    return std::nullopt;
  }

  // A scalar or a row of weights: costs an epilogue next to nothing.
  bool is_leaf_vector(NodeId value) const {
    return !is_compute(graph_[storage_of(graph_, value)]) &&
           graph_[storage_of(graph_, value)].type.shape.size() <= 1;
  }

  // Views inside a row-wise region may only repeat elements, or add and drop axes of size 1.
  bool keeps_rows(NodeId value) const {
    const auto without_ones = [&](NodeId id) {
      Shape shape = graph_.type(id).shape;
      std::erase(shape, Dim(1));
      return shape;
    };
    for (const NodeId view : views_of(graph_, value)) {
      const Node& node = graph_[view];
      const bool harmless =
          node.op == Op::expand ||
          (node.op == Op::reshape && without_ones(view) == without_ones(node.inputs[0]));
      if (!harmless) return false;
    }
    return true;
  }

  std::optional<Boundary> try_rows(NodeId producer, NodeId id, int& joined) {
    if (joined >= 0 && part(joined).kind == Kind::matrix)
      return edge(Reason::stands_alone, producer, id, "it is the epilogue of a product");
    for (const NodeId input : graph_[id].inputs)
      if (storage_of(graph_, input) == producer && !keeps_rows(input))
        return edge(Reason::layout, producer, id, "a view in between moves elements across rows");
    const int other = home(producer);
    auto rows = join(part(other).rows, rows_of(graph_, graph_[id]));
    if (joined >= 0 && std::holds_alternative<Rows>(rows))
      rows = join(std::get<Rows>(rows), part(joined).rows);
    if (const auto* reason = std::get_if<Reason>(&rows))
      return edge(*reason, producer, id,
                  *reason == Reason::shape ? "the rows differ" : "the reductions differ");
    std::set<int> merged{other};
    if (joined >= 0) merged.insert(joined);
    if (would_cycle(merged, sources(id)))
      return edge(Reason::order, producer, id, "another operand needs the region");
    part(other).rows = std::get<Rows>(rows);
    if (joined >= 0) absorb(other, joined);
    joined = other;
    return std::nullopt;
  }

  void absorb(int into, int from) {
    Part &to = part(into), &gone = part(from);
    for (const NodeId id : gone.nodes) home_[static_cast<std::size_t>(id)] = into;
    to.nodes.insert(to.nodes.end(), gone.nodes.begin(), gone.nodes.end());
    to.first = std::min(to.first, gone.first);
    to.last = std::max(to.last, gone.last);
    to.boundaries.insert(to.boundaries.end(), gone.boundaries.begin(), gone.boundaries.end());
    gone = {};
  }

  // Of the parts that can run, always the one whose first node comes first.
  std::vector<Group> in_order() {
    const std::size_t count = parts_.size();
    std::vector<std::set<int>> readers(count);
    std::vector<int> missing(count);
    using Entry = std::pair<int, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    std::size_t live = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Part& part = parts_[i];
      if (part.nodes.empty()) continue;
      ++live;
      std::set<int> needed;
      for (const NodeId id : part.nodes) needed.merge(sources(id));
      needed.erase(static_cast<int>(i));
      for (const int source : needed)
        readers[static_cast<std::size_t>(source)].insert(static_cast<int>(i));
      missing[i] = static_cast<int>(needed.size());
      if (needed.empty()) ready.emplace(part.first, i);
    }
    std::vector<Group> groups;
    while (!ready.empty()) {
      const auto index = static_cast<std::size_t>(ready.top().second);
      ready.pop();
      for (const int reader : readers[index])
        if (const auto at = static_cast<std::size_t>(reader); --missing[at] == 0)
          ready.emplace(parts_[at].first, reader);
      Group group{std::move(parts_[index].nodes), {}};
      for (const Boundary& boundary : parts_[index].boundaries)
        if (boundary.from == boundary.to || home(boundary.from) != home(boundary.to))
          group.boundaries.push_back(boundary);
      groups.push_back(std::move(group));
    }
    AC_ASSERT(groups.size() == live);
    return groups;
  }

  const UseDef& uses_;
  const Graph& graph_;
  std::vector<int> home_;
  std::vector<Part> parts_;
};

}  // namespace

std::vector<Group> group_nodes(const UseDef& uses) { return Grouper(uses).run(); }

}  // namespace ac
