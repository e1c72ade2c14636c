#include "reference/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"

namespace ac {

std::int64_t element_count(const Sizes& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) AC_ASSERT(!__builtin_mul_overflow(product, size, &product));
  return product;
}

std::string to_string(DType dtype, const Sizes& shape) {
  return fmt::format("{}[{}]", short_name(dtype), fmt::join(shape, ", "));
}

std::string why_not_elements(DType dtype, const std::vector<double>& data) {
  if (is_float(dtype)) return {};
  const bool boolean = dtype == DType::boolean;
  const double least = boolean ? 0 : dtype == DType::i32 ? -0x1p31 : -0x1p53;
  const double most = boolean ? 1 : dtype == DType::i32 ? 0x1p31 - 1 : 0x1p53;
  for (const double element : data)
    if (!(element >= least && element <= most && element == std::trunc(element)))
      return fmt::format("{} is not a value of {}{}", element, short_name(dtype),
                         dtype == DType::i64 ? " within 2^53" : "");
  return {};
}

}  // namespace ac
