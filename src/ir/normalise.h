// Brings any captured graph into one normal form, so that the same model gives the same graph
// whichever front end captured it, and later stages meet few shapes of the same idea:
//
//   - every value that depends on tokens has the token axis S first, and no batch axis;
//   - attention, norms, RoPE, activations and projections are one op each, where they were spelled
//     out; grouped key-value heads are not repeated;
//   - constants are folded, equal values merged, unused ones dropped, nodes in depth-first order.
//
// It stands before incrementalise, which only has to look at axis 0. What couples tokens in any way
// but causal attention is an error here, naming the op and its module.
#pragma once

#include "ir/graph.h"

namespace ac {

Graph normalise(const Graph& graph);

}  // namespace ac
