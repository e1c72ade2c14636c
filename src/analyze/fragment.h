// A region as a step of its own: what it reads from other regions becomes inputs, what it leaves
// for them outputs. Weights, constants and positions stay what they are. The admission gate judges
// kernels on these.
#pragma once

#include <functional>

#include "analyze/region.h"

namespace ac {

StepGraph fragment_of(const StepGraph& step, const Region& region);

// The same with fewer rows in the weights of its products: `rows(n)` instead of n, which is at most
// n. What is inside stays as it is: lengths of sums, tokens, heads. Where the rest of the fragment
// needs all rows (a view that cuts heads out of a product), it comes back unchanged.
StepGraph with_fewer_rows(const StepGraph& fragment,
                          const std::function<std::int64_t(std::int64_t)>& rows);

// The same with so many KV heads, and query heads in the same proportion, of a fragment that makes
// queries, keys and values itself by products, or reads them; unchanged where it is any other.
StepGraph with_fewer_heads(const StepGraph& fragment, std::int64_t kv_heads);

}  // namespace ac
