#include "ir/layout.h"

#include <algorithm>

#include "base/error.h"

namespace ac {
namespace {

bool is_view(const Node& node) { return info(node.op).memory == Memory::view; }

Shape row_major(const Shape& shape) {
  Shape strides(shape.size());
  Dim stride(1);
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = shape[i] == Dim(1) ? Dim(0) : stride;
    stride = stride * shape[i];
  }
  return strides;
}

// Whether a <= b for all values of the symbols, as far as that is plain to see.
bool divides(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return a.constant() <= b.constant();
  return b.divided_by(a).has_value();
}

// The strides of a reshape, group by group: axes that together have as many elements before as
// after. A group must be evenly spaced to be split in another way.
std::optional<Shape> reshape_strides(const Shape& from, const Shape& strides, const Shape& to) {
  Shape result(to.size());
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const std::size_t first_i = i, first_j = j;
    Dim before(1), after(1);
    if (i < from.size()) before = from[i++];
    if (j < to.size()) after = to[j++];
    while (before != after) {
      if (i < from.size() && divides(before, after))
        before = before * from[i++];
      else if (j < to.size() && divides(after, before))
        after = after * to[j++];
      else
        return std::nullopt;
    }
    std::optional<Dim> stride, outer;  // of the innermost axis; what the next axis out must have
    for (std::size_t axis = i; axis-- > first_i;) {
      if (from[axis] == Dim(1)) continue;
      if (outer && strides[axis] != *outer) return std::nullopt;
      if (!stride) stride = strides[axis];
      outer = strides[axis] * from[axis];
    }
    Dim next = stride.value_or(0);
    for (std::size_t axis = j; axis-- > first_j;) {
      if (to[axis] == Dim(1)) continue;
      result[axis] = next;
      next = next * to[axis];
    }
  }
  return result;
}

// Applies one view; false when the result has no strides.
bool apply(const Graph& graph, const Node& view, Layout& layout) {
  const Shape& from = graph.type(view.inputs[0]).shape;
  const Shape& to = view.type.shape;
  switch (view.op) {
    case Op::permute: {
      Shape strides;
      for (const std::int64_t axis : view.integers("axes"))
        strides.push_back(layout.strides[static_cast<std::size_t>(axis)]);
      layout.strides = std::move(strides);
      return true;
    }
    case Op::expand: {
      Shape strides(to.size());
      const std::size_t shift = to.size() - from.size();
      for (std::size_t i = 0; i < from.size(); ++i)
        if (from[i] == to[shift + i]) strides[shift + i] = layout.strides[i];
      layout.strides = std::move(strides);
      return true;
    }
    case Op::slice: {
      const auto axis = static_cast<std::size_t>(view.integer("axis"));
      layout.offset = layout.offset + view.dim("start") * layout.strides[axis];
      layout.strides[axis] =
          to[axis] == Dim(1) ? Dim(0) : layout.strides[axis] * Dim(view.integer("step"));
      return true;
    }
    case Op::reshape: {
      // Without gaps, also where symbols leave open which axes belong together.
      if (layout.strides == row_major(from)) {
        layout.strides = row_major(to);
        return true;
      }
      auto strides = reshape_strides(from, layout.strides, to);
      if (!strides) return false;
      layout.strides = std::move(*strides);
      return true;
    }
    default:
      AC_UNREACHABLE();
  }
}

}  // namespace

std::string_view to_string(Placement placement) {
  switch (placement) {
    case Placement::contiguous:
      return "contiguous";
    case Placement::strided:
      return "strided";
    case Placement::opaque:
      return "opaque";
  }
  AC_UNREACHABLE();
}

NodeId storage_of(const Graph& graph, NodeId value) {
  while (is_view(graph[value])) value = graph[value].inputs[0];
  return value;
}

std::vector<NodeId> views_of(const Graph& graph, NodeId value) {
  std::vector<NodeId> views;
  for (; is_view(graph[value]); value = graph[value].inputs[0]) views.push_back(value);
  std::reverse(views.begin(), views.end());
  return views;
}

Layout layout_of(const Graph& graph, NodeId value) {
  return layout_of(graph, value, storage_of(graph, value));
}

Layout layout_of(const Graph& graph, NodeId value, NodeId base) {
  Layout layout{Placement::contiguous, 0, row_major(graph.type(base).shape)};
  std::vector<NodeId> views;
  for (NodeId view = value; view != base; view = graph[view].inputs[0]) views.push_back(view);
  for (auto view = views.rbegin(); view != views.rend(); ++view)
    if (!apply(graph, graph[*view], layout)) return {Placement::opaque, 0, {}};
  if (layout.strides != row_major(graph.type(value).shape)) layout.placement = Placement::strided;
  return layout;
}

Dim elements_touched(const Graph& graph, NodeId value) {
  const Layout layout = layout_of(graph, value);
  const Shape& shape = graph.type(value).shape;
  if (layout.placement == Placement::opaque) return product(shape);
  Dim count(1);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (layout.strides[i] != Dim(0) || shape[i] == Dim(0)) count = count * shape[i];
  return count;
}

}  // namespace ac
