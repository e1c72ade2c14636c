// Elementwise ops on plain numbers, in the type's own arithmetic: what PyTorch leaves in a tensor
// of that type. Constants are folded with them, and masks are proven with them.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace ac {

// The value converted; nothing where the type has no such value (NaN or 1e20 as an integer).
std::optional<double> convert(DType to, double value);

// The op on elements of `dtype`, rounded to it (a comparison's result is 0 or 1). Nothing for other
// ops, and where integers overflow.
std::optional<double> compute(Op op, DType dtype, double a);
std::optional<double> compute(Op op, DType dtype, double a, double b);

// The same, but only where every implementation gives the same bits: not exp(0.3), but exp(0).
std::optional<double> compute_exactly(Op op, DType dtype, double a);
std::optional<double> compute_exactly(Op op, DType dtype, double a, double b);

// Up to here the type has every whole number.
double most_exact(DType dtype);

}  // namespace ac
