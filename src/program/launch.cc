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

constexpr std::int64_t kMostRows = 0x7fffffff;

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

const char* why_impossible_rows(const Launch& launch) {
  constexpr int kMostRows = 64;
  if (launch.rows < 1 || launch.rows > kMostRows) return "it takes an impossible number of rows";
  if (launch.rows == 1) return nullptr;
  if (!launch.each_row) return "it takes several rows, and does not run for each";
  if (launch.product || !launch.maps.empty() || launch.grid[2] != Count(1) || launch.at_once)
    return "it takes several rows, and is a product, has a map, a grid of three axes, or blocks "
           "that wait for each other";
  return nullptr;
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
  if (!launch.maps.empty()) return "a product takes no maps";
  if (launch.params.size() != sizeof(ProductParams)) return "the parameters are none of a product";
  return {};
}

const char* why_impossible(const Launch::Stamps& stamps, const Launch& launch) {
  constexpr std::int64_t kMost = 4096;
  if (stamps.at % 8 != 0 || stamps.at + std::uint64_t{8} > launch.params.size())
    return "stamps are not in their place among the parameters";
  for (const Count& axis : launch.grid)
    if (!axis.is_constant() || axis.fixed < 1 || axis.fixed > kMost)
      return "stamps of blocks whose number is not known, or too large";
  if (stamps.rounds < 1 || stamps.rounds > kMost || stamps.points.empty() ||
      std::ssize(stamps.points) > kMost)
    return "an impossible number of stamps";
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  return bytes_of(stamps, launch) > kMostBytes ? "stamps take too much memory" : nullptr;
}

std::int64_t bytes_of(const Launch::Stamps& stamps, const Launch& launch) {
  return launch.grid[0].fixed * launch.grid[1].fixed * launch.grid[2].fixed * stamps.rounds *
         std::ssize(stamps.points) * 8;
}

Launch stamped(const Launch& launch, void* address) {
  Launch copy = launch;
  std::memcpy(copy.params.data() + copy.stamps->at, &address, sizeof address);
  return copy;
}

const char* why_impossible(const Launch::Map& map, const Launch& launch, std::int64_t tokens) {
  constexpr std::uint32_t kAlignment = 64;
  if (map.at % kAlignment != 0 ||
      map.at + std::uint64_t{sizeof(kernels::TensorMap)} > launch.params.size())
    return "a map is not in its place among the parameters";
  if (map.dtype != DType::f16 && map.dtype != DType::bf16) return "a map of no 16-bit elements";
  const std::int64_t rows = map.rows.at(tokens), offset = map.offset.at(tokens);
  if (rows < 1 || rows > kMostRows || map.columns < 1 || map.pitch > kMostRows ||
      map.pitch < map.columns)
    return "a map of an impossible matrix";
  if (map.pitch % 8 != 0 || offset % 16 != 0)
    return "a map whose rows do not start at multiples of 16 bytes";
  const bool is_possible = map.box_rows >= 1 && map.box_rows <= 256 && map.box_panels >= 1 &&
                           map.box_panels <= 256 && (map.box_panels == 1 || map.columns % 64 == 0);
  if (!is_possible) return "a map with impossible boxes";
  return nullptr;
}

std::int64_t bytes_of(const Launch::Map& map, std::int64_t tokens) {
  return ((map.rows.at(tokens) - 1) * map.pitch + map.columns) * 2;
}

namespace {

// Into `params`, instead of what it holds.
void bind(const Launch& launch, std::int64_t tokens, const std::vector<void*>& addresses,
          const EncodeMap& encode, std::vector<std::byte>& params) {
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
  for (const Launch::Map& map : launch.maps) {
    const auto* const base =
        static_cast<std::byte*>(addresses[static_cast<std::size_t>(map.buffer)]);
    kernels::TensorMap encoded{};
    encode({.base = base + map.offset.at(tokens),
            .rows = map.rows.at(tokens),
            .columns = map.columns,
            .pitch = map.pitch,
            .box_rows = map.box_rows,
            .box_panels = map.box_panels,
            .bf16 = map.dtype == DType::bf16},
           encoded);
    AC_ASSERT(map.at + sizeof encoded <= params.size());
    std::memcpy(params.data() + map.at, &encoded, sizeof encoded);
  }
}

}  // namespace

std::vector<std::byte> bind_params(const Launch& launch, std::int64_t tokens,
                                   const std::vector<void*>& addresses, const EncodeMap& encode) {
  std::vector<std::byte> params;
  bind(launch, tokens, addresses, encode, params);
  return params;
}

std::vector<std::byte> bind_rows(const Launch& launch,
                                 std::span<const std::vector<void*>> addresses,
                                 const EncodeMap& encode) {
  AC_ASSERT(!addresses.empty() && std::ssize(addresses) <= launch.rows);
  std::vector<std::byte> all, params;
  for (const std::vector<void*>& of_row : addresses) {
    // Else it is std::bind, by the vector.
    ac::bind(launch, std::int64_t{1}, of_row, encode, params);
    all.insert(all.end(), params.begin(), params.end());
  }
  all.resize(launch.params.size() * static_cast<std::size_t>(launch.rows));
  return all;
}

void launch_all(std::span<const Launch> launches, std::int64_t tokens,
                const std::vector<void*>& addresses, const EncodeMap& encode,
                const RunLaunch& run) {
  std::vector<std::byte> params;
  for (const Launch& launch : launches) {
    bind(launch, tokens, addresses, encode, params);
    run(launch, params);
  }
}

}  // namespace ac
