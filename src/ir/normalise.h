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

// The float type of most of the weights' elements.
DType main_dtype(const Graph& graph);

// The same model with another float type in the place of its main one: of weights, which are
// converted when they are read, of activations and of caches. Parts that a model computes in
// another type on purpose keep it, and so do angles of positions, which need float32.
Graph compute_in(const Graph& normal, DType dtype);

}  // namespace ac
