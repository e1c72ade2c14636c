// The passes of normalise(), in the order in which it runs them.
#pragma once

#include "ir/rewrite.h"

namespace ac {

// Removes what changes nothing (casts to the same type, views of views, x + 0), folds constants,
// and spells out what the later passes need (an outer product is a mul). Runs after each pass.
std::vector<Rule> cleanup_rules();

// Other spellings: softmax written out, selections by constant indices, positions from a buffer.
// They run with the cleanup until attention is recognised.
std::vector<Rule> spelling_rules();

// Pairs of tokens in one layout, whatever einsum or the model made: heads, queries, keys. They run
// with the spellings.
std::vector<Rule> layout_rules();

// Lowers the limit to what the graph's slices have room for.
Graph limit_tokens(const Graph& graph);

// Lowers the limit to what tables have room for, and to where positions are what PyTorch's
// rounding makes of them, if an integer or a comparison depends on it. Refuses integers that may
// overflow, and comparisons that it cannot follow.
Graph limit_to_exact(const Graph& graph);

// softmax(mask(q k^T)) v becomes `attention`, where the mask is proven to be causal. Must run while
// both token axes are still visible.
Graph recognise_attention(const Graph& graph);

// Moves the token axis to the front of every value and drops axes of size 1, the batch axis among
// them. Transposes around attention vanish here.
Graph put_tokens_first(const Graph& graph);

// Spelled-out norms, RoPE, activations and projections become one op each. Needs the token axis
// first, which leaves one spelling of each broadcast.
std::vector<Rule> recognition_rules();

// Those and the cleanup: what leaves a graph in normal form as it is.
std::vector<Rule> normal_form_rules();

}  // namespace ac
