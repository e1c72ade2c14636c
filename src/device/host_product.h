// Matrix products on the CPU, in plain C++: what stands in for a library where there is none.
#pragma once

#include <cstddef>
#include <span>

#include "base/product.h"

namespace ac {

void multiply_on_host(const Product& product, std::span<const std::byte> params);

}  // namespace ac
