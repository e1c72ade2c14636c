// Views as addresses: where the elements of a value lie in the tensor that it is a view of. A
// kernel reads through a view by offset and strides, so that no view is ever computed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ac {

enum class Placement : std::uint8_t {
  contiguous,  // row-major from `offset`
  strided,     // by `strides`
  opaque,      // no strides say it (a reshape across gaps): it must be copied
};
std::string_view to_string(Placement placement);

struct Layout {
  Placement placement = Placement::contiguous;
  Dim offset;     // in elements
  Shape strides;  // in elements; 0 for axes of size 1 and for repeated ones. Empty when opaque
  bool operator==(const Layout&) const = default;
};

// What a value is a view of: the first node towards the inputs that is no view.
NodeId storage_of(const Graph& graph, NodeId value);
// The views from the storage to the value, in order of application; empty when it is no view.
std::vector<NodeId> views_of(const Graph& graph, NodeId value);
Layout layout_of(const Graph& graph, NodeId value);
// As if `base`, which is the value or among what it is a view of, were a tensor in memory.
Layout layout_of(const Graph& graph, NodeId value, NodeId base);
// How many elements of its storage reading the value touches: repeated ones count once.
Dim elements_touched(const Graph& graph, NodeId value);

}  // namespace ac
