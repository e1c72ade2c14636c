#include "program/launch.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace ac {

namespace {

// Twice as wide, so that no count that a file may hold overflows on its way.
__extension__ using Wide = __int128;

Wide clamp(Wide value) {
  return std::clamp<Wide>(value, std::numeric_limits<std::int64_t>::min(),
                          std::numeric_limits<std::int64_t>::max());
}

}  // namespace

std::int64_t Count::at(std::int64_t tokens) const {
  // Each launch asks some of these, and a wide division takes as long as all the rest of it.
  if (per == 1 && times == 1 && at_most == 0) {
    std::int64_t rising = 0, sum = 0;
    if (!__builtin_mul_overflow(per_token, tokens, &rising) &&
        !__builtin_add_overflow(fixed, rising, &sum))
      return sum;
  }
  const Wide size = Wide(fixed) + Wide(per_token) * tokens;
  const auto value = static_cast<std::int64_t>(clamp(clamp((size + per - 1) / per) * times));
  return at_most > 0 ? std::min(value, at_most) : value;
}

std::string why_no_product(const Launch& launch) {
  const Product& product = *launch.product;
  if (launch.kernel != name_of(product)) return "a product goes by another name";
  std::vector<std::uint32_t> wanted = {offsetof(ProductParams, x), offsetof(ProductParams, weight)};
  if (product.bias) wanted.push_back(offsetof(ProductParams, bias));
  if (product.residual) wanted.push_back(offsetof(ProductParams, residual));
  wanted.push_back(offsetof(ProductParams, y));
  std::vector<std::uint32_t> given;
  for (const Launch::Pointer& pointer : launch.pointers) given.push_back(pointer.at);
  std::ranges::sort(given);
  if (given != wanted) return "the pointers are not those of a product";
  if (launch.numbers.size() != 1 || launch.numbers[0].at != offsetof(ProductParams, m) ||
      launch.numbers[0].bytes != sizeof(ProductParams::m))
    return "the numbers are not those of a product";
  if (launch.params.size() != sizeof(ProductParams)) return "the parameters are none of a product";
  return {};
}

void bind_params(const Launch& launch, std::int64_t tokens, const std::vector<void*>& addresses,
                 std::vector<std::byte>& params) {
  params.assign(launch.params.begin(), launch.params.end());
  for (const Launch::Pointer& pointer : launch.pointers) {
    auto* address = static_cast<std::byte*>(addresses[static_cast<std::size_t>(pointer.buffer)]);
    address += pointer.offset.at(tokens);
    AC_ASSERT(pointer.at + sizeof address <= params.size());
    std::memcpy(params.data() + pointer.at, &address, sizeof address);
  }
  for (const Launch::Number& number : launch.numbers) {
    AC_ASSERT(number.at + number.bytes <= params.size());
    const std::int64_t wide = number.value.at(tokens);
    const auto narrow = static_cast<std::int32_t>(wide);
    if (number.bytes == 8)
      std::memcpy(params.data() + number.at, &wide, 8);
    else
      std::memcpy(params.data() + number.at, &narrow, 4);
  }
}

std::vector<std::byte> bind_params(const Launch& launch, std::int64_t tokens,
                                   const std::vector<void*>& addresses) {
  std::vector<std::byte> params;
  bind_params(launch, tokens, addresses, params);
  return params;
}

}  // namespace ac
