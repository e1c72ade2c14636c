#include "analyze/grouping.h"

#include <algorithm>
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
  return is_pointwise(op) || info(op).reduces() || op == Op::rope ? Kind::rowwise : Kind::alone;
}

// The rows that row-wise ops walk over: one shape, and the axes that belong to one row.
struct Rows {
  Shape shape;
  std::vector<std::int64_t> axes;  // sorted; empty: any
};

Rows rows_of(const Graph& graph, const Node& node) {
  if (info(node.op).over == Over::each) return {node.type.shape, {}};
  const Shape& shape = graph.type(node.inputs[0]).shape;
  if (node.op == Op::rope) return {shape, {std::ssize(shape) - 1}};  // it mixes a head's features
  std::vector<std::int64_t> axes = reduced_axes(graph, node);
  std::sort(axes.begin(), axes.end());
  return {shape, axes};
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
    std::vector<NodeId> nodes;
    std::set<int> needs;    // parts that it reads from
    int first = 0;          // position of its first node
    Rows rows;              // of row-wise ops
    bool has_side = false;  // an epilogue reads a tensor besides
    std::vector<Boundary> boundaries;
    int absorbed_by = -1;
  };

  Part& part(int index) { return parts_[static_cast<std::size_t>(index)]; }
  int living(int index) const {
    while (parts_[static_cast<std::size_t>(index)].absorbed_by >= 0)
      index = parts_[static_cast<std::size_t>(index)].absorbed_by;
    return index;
  }
  // The part of a node, or -1.
  int home(NodeId id) const {
    const int index = home_[static_cast<std::size_t>(id)];
    return index < 0 ? -1 : living(index);
  }

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
    std::vector<bool> seen(parts_.size());
    const auto need = [&](int index) {
      if (seen[static_cast<std::size_t>(index)]) return;
      seen[static_cast<std::size_t>(index)] = true;
      stack.push_back(index);
    };
    const auto need_outside = [&](const std::set<int>& needed) {
      for (const int index : needed)
        if (merged.count(living(index)) == 0) need(living(index));
    };
    need_outside(pending);
    if (merged.size() > 1)  // one part by itself does not need itself
      for (const int index : merged) need_outside(part(index).needs);
    while (!stack.empty()) {
      const int index = stack.back();
      stack.pop_back();
      for (const int needed : part(index).needs) {
        if (merged.count(living(needed)) > 0) return true;
        need(living(needed));
      }
    }
    return false;
  }

  void place(NodeId id) {
    std::vector<Boundary> boundaries;
    if (auto hard = hard_boundary(graph_, id)) boundaries.push_back(*hard);
    if (info(graph_[id].op).memory == Memory::state)
      boundaries.push_back({Reason::state, id, id, describe(graph_, id) + ": writes a state"});

    int joined = -1;
    for (const std::vector<NodeId>& producers : producers_by_part(id)) {
      const auto refusal = try_join(producers, id, joined);
      if (!refusal) continue;
      for (const NodeId producer : producers)
        boundaries.push_back({refusal->reason, producer, id, refusal->text});
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
    chosen.needs.merge(sources(id));
    chosen.needs.erase(joined);
    chosen.boundaries.insert(chosen.boundaries.end(), boundaries.begin(), boundaries.end());
  }

  // What `id` reads, part by part. Products first, the last one first of all: what else an epilogue
  // needs is ready by then.
  std::vector<std::vector<NodeId>> producers_by_part(NodeId id) const {
    std::vector<std::vector<NodeId>> lists;
    for (const NodeId operand : uses_.operands(id)) {
      if (home(operand) < 0) continue;
      const auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& other) {
        return home(other[0]) == home(operand);
      });
      if (list == lists.end())
        lists.push_back({operand});
      else
        list->push_back(operand);
    }
    const auto is_product = [&](const std::vector<NodeId>& list) {
      return parts_[static_cast<std::size_t>(home(list[0]))].kind == Kind::matrix;
    };
    std::stable_sort(lists.begin(), lists.end(), [&](const auto& a, const auto& b) {
      if (is_product(a) != is_product(b)) return is_product(a);
      return is_product(a) && uses_.position(a[0]) > uses_.position(b[0]);
    });
    return lists;
  }

  // Puts `id` with its producers, all of one part (and with the part that it joined before), or
  // says why not.
  std::optional<Boundary> try_join(const std::vector<NodeId>& producers, NodeId id, int& joined) {
    for (const NodeId producer : producers)
      if (auto boundary = hard_edge(uses_, producer, id)) return boundary;
    const Kind from = part(home(producers[0])).kind, to = kind_of(graph_[id].op);
    if (to == Kind::matrix)
      return edge(Reason::stands_alone, producers[0], id, "a product starts a region");
    if (from == Kind::alone || to == Kind::alone)
      return edge(Reason::stands_alone, producers[0], id,
                  "gathers, copies and attention stand alone");
    if (from == Kind::matrix) return try_epilogue(producers[0], id, joined);
    return try_rows(producers, id, joined);
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

  std::optional<Boundary> try_rows(const std::vector<NodeId>& producers, NodeId id, int& joined) {
    const NodeId producer = producers[0];
    if (joined >= 0 && part(joined).kind == Kind::matrix)
      return edge(Reason::stands_alone, producer, id, "it is the epilogue of a product");
    const int other = home(producer);
    for (const NodeId input : graph_[id].inputs)
      if (home(storage_of(graph_, input)) == other && !keeps_rows(input))
        return edge(Reason::layout, producer, id, "a view in between moves elements across rows");
    if (joined >= 0)
      if (auto boundary = boundary_between(other, joined)) return boundary;
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

  // Why two parts were kept apart before.
  std::optional<Boundary> boundary_between(int a, int b) {
    for (const auto& [reader, source] : {std::pair{a, b}, std::pair{b, a}})
      for (const Boundary& boundary : part(reader).boundaries)
        if (boundary.from != boundary.to && home(boundary.from) == source) return boundary;
    return std::nullopt;
  }

  void absorb(int into, int from) {
    Part &to = part(into), &gone = part(from);
    to.first = std::min(to.first, gone.first);
    to.nodes.insert(to.nodes.end(), gone.nodes.begin(), gone.nodes.end());
    to.needs.merge(gone.needs);
    to.boundaries.insert(to.boundaries.end(), gone.boundaries.begin(), gone.boundaries.end());
    gone = {};
    gone.absorbed_by = into;
    to.needs.erase(into);
    to.needs.erase(from);
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
      if (part.absorbed_by >= 0) continue;
      ++live;
      std::set<int> needed;
      for (const int index : part.needs) needed.insert(living(index));
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
