// Conversions of many elements that lie side by side: what load_element() and store_element()
// (base/dtype.h) do, but much faster. Memory need not be aligned.
#pragma once

#include <span>

#include "base/dtype.h"

namespace ac {

void load_elements(DType dtype, const void* from, std::span<double> elements);
void store_elements(DType dtype, std::span<const double> elements, void* to);

}  // namespace ac
