// A region as the matchers look at it.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "analyze/region.h"
#include "kernels/plan.h"

namespace ac {

std::optional<kernels::Type> kernel_type(DType dtype);

// Elements of a row, with room for 32-bit offsets in bytes.
inline constexpr int kMaxRow = 1 << 24;

class Body {
 public:
  // `argmax`: the index of the largest result is wanted too.
  Body(const StepGraph& step, const Region& region, const Bindings& at, bool argmax = false);

  const StepGraph& step() const { return step_; }
  const Graph& graph() const { return step_.graph; }
  const Region& region() const { return region_; }
  const Bindings& at() const { return at_; }
  bool argmax() const { return argmax_; }
  const Node& operator[](NodeId id) const { return step_.graph[id]; }

  const std::vector<NodeId>& compute() const { return compute_; }  // in an order that can run
  bool inside(NodeId id) const { return members_.count(id) > 0; }
  bool is_output(NodeId id) const;
  // The nodes of the region that read the value itself, not a view of it.
  std::vector<NodeId> users(NodeId id) const;
  // The value of a constant of one element.
  std::optional<double> immediate(NodeId value) const;
  const Parameter* input(NodeId value) const;
  // A value from outside of this role, whose elements lie one after the other.
  bool is_contiguous(NodeId value, Role role) const;
  // Like the elements of its storage: no view, or one that only renames axes.
  bool is_flat(NodeId value) const;

  int size(const Dim& dim) const;  // at one T and P; -1 where no kernel counts that far
  // As [rows, columns].
  int columns(const Shape& shape) const { return shape.empty() ? 1 : size(shape.back()); }
  int rows(const Shape& shape) const;
  // Elements from row to row, where rows lie at equal distances and columns are neighbours.
  std::optional<std::int64_t> row_pitch(NodeId value) const;
  // Elements from token to token of [tokens, heads, size], where the heads of one are neighbours.
  std::optional<std::int64_t> head_pitch(NodeId value) const;
  // Whether the value, broadcast to a shape, can be addressed by one stride for rows and one for
  // columns; and whether it has an element for each of the shape's.
  struct Broadcast {
    bool two_strides = false, full = false;
    std::int64_t row_stride = 0, column_stride = 0;
  };
  Broadcast broadcast_to(NodeId value, const Shape& shape) const;

 private:
  const StepGraph& step_;
  const Region& region_;
  Bindings at_;
  bool argmax_;
  std::vector<NodeId> compute_;
  std::set<NodeId> members_;
};

}  // namespace ac
