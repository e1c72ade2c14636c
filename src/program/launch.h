// One launch as data, of a kernel or of a library's product: what a generator writes, a package
// stores and a runtime carries out, none of them knowing the others. The parameter struct of the
// kernel is a row of bytes, in which only addresses, and numbers that depend on how many tokens a
// step has, are left open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/product.h"

namespace ac {

// times * ceil((fixed + per_token * tokens) / per), but not more than `at_most` where that is not
// 0. What goes beyond 64 bits stays at their end.
struct Count {
  std::int64_t fixed = 0, per_token = 0;
  std::int64_t per = 1, times = 1, at_most = 0;

  Count() = default;
  Count(std::int64_t value) : fixed(value) {}  // NOLINT: counts are mostly plain numbers
  Count(std::int64_t fixed, std::int64_t per_token) : fixed(fixed), per_token(per_token) {}
  std::int64_t at(std::int64_t tokens) const;
  bool is_constant() const { return per_token == 0; }
  bool operator==(const Count&) const = default;
};

struct Launch {
  // The address of `buffer`, and `offset` bytes behind, goes to the byte `at` of the parameters.
  struct Pointer {
    std::uint32_t at = 0;
    std::int32_t buffer = 0;
    Count offset;
    bool operator==(const Pointer&) const = default;
  };
  // An integer of 4 or 8 bytes.
  struct Number {
    std::uint32_t at = 0, bytes = 4;
    Count value;
    bool operator==(const Number&) const = default;
  };

  std::string kernel;  // the entry's name, or that of the product
  // What a library computes in place of a kernel. Its parameters are ProductParams, and it shapes
  // its grid and block itself.
  std::optional<Product> product = {};
  std::array<Count, 3> grid = {1, 1, 1};
  int threads = 0;
  int shared_bytes = 0;
  std::vector<std::byte> params;  // zeros where a pointer or a number goes
  std::vector<Pointer> pointers;
  std::vector<Number> numbers;

  bool operator==(const Launch&) const = default;
};

// Why a launch with a product does not give it what it needs, each once, or nothing. Whether that
// is where it should be is another question.
std::string why_no_product(const Launch& launch);

// The parameters of one run, with addresses by the number of their buffer, instead of what `params`
// holds: whoever launches again and again gives the same one.
void bind_params(const Launch& launch, std::int64_t tokens, const std::vector<void*>& addresses,
                 std::vector<std::byte>& params);
std::vector<std::byte> bind_params(const Launch& launch, std::int64_t tokens,
                                   const std::vector<void*>& addresses);

}  // namespace ac
