// One launch as data, of a kernel or of a library's product: what a generator writes, a package
// stores and a runtime carries out, none of them knowing the others. The parameter struct of the
// kernel is a row of bytes, in which only addresses, numbers that depend on how many tokens a step
// has, and maps of matrices, which are made of both, are left open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/product.h"
#include "kernels/tensor_map.h"

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
  // The address of the buffer, and `offset` bytes behind, goes to the byte `at` of the parameters.
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

  // The 128 bytes at `at`, where a kernel takes a kernels::TensorMap, become that of a matrix: its
  // first row is `offset` bytes behind the address of the buffer.
  struct Map {
    std::uint32_t at = 0;
    std::int32_t buffer = 0;
    Count offset = {}, rows = {};
    std::int64_t columns = 0, pitch = 0;  // elements; the pitch from row to row
    std::int32_t box_rows = 0;
    DType dtype = DType::f16;
    std::int32_t box_panels = 1;  // of 64 columns
    bool operator==(const Map&) const = default;
  };

  // A kernel whose work has rounds can say when each block comes to each point of each: the address
  // of [blocks][rounds][points] 64-bit numbers goes to the byte `at`, and nanoseconds come there.
  struct Stamps {
    std::uint32_t at = 0;
    std::int64_t rounds = 1;
    std::vector<std::string> points = {};  // what a block has done when it comes there
    bool operator==(const Stamps&) const = default;
  };

  std::string kernel;  // the entry's name, or that of the product
  // What a library computes in place of a kernel. Its parameters are ProductParams, and it shapes
  // its grid and block itself.
  std::optional<Product> product = {};
  std::array<Count, 3> grid = {1, 1, 1};
  int threads = 0;
  int shared_bytes = 0;
  std::vector<std::byte> params;  // zeros where a pointer, a number or a map goes
  std::vector<Pointer> pointers;
  std::vector<Number> numbers;
  std::vector<Map> maps;
  std::optional<Stamps> stamps = {};
  // In a step of several sequences (Rows::each), it runs once for each row, as a step of one token
  // of the row's sequence. What the step has a row of for each token, it finds at that row.
  bool each_row = false;
  // Its blocks wait for each other: the device must have room for all of them at once.
  bool at_once = false;
  // Rows that one launch of the kernel takes at most, if that is more than one: it wants the
  // parameters of so many rows one after the other, and the grid's third axis counts rows.
  int rows = 1;

  bool operator==(const Launch&) const = default;
};

// Why a launch cannot take so many rows, or null.
const char* why_impossible_rows(const Launch& launch);

// Why a launch with a product does not give it what it needs, each once, or nothing. Whether that
// is where it should be is another question.
std::string why_no_product(const Launch& launch);

// Why a launch cannot have these stamps, or null; and the bytes that they take.
const char* why_impossible(const Launch::Stamps& stamps, const Launch& launch);
std::int64_t bytes_of(const Launch::Stamps& stamps, const Launch& launch);
// The launch, with stamps at an address.
Launch stamped(const Launch& launch, void* address);

// Why there is no map like this among the parameters of the launch, at so many tokens, or null.
// Whether its matrix lies in its buffer is another question.
const char* why_impossible(const Launch::Map& map, const Launch& launch, std::int64_t tokens);
// Bytes from the map's first row to the end of its last, of a map that is possible; no count of a
// file overflows.
std::int64_t bytes_of(const Launch::Map& map, std::int64_t tokens);

// How the device that a launch is for has its maps (Device::map_encoder).
using EncodeMap = std::function<void(const kernels::MatrixView&, kernels::TensorMap&)>;

// The parameters of one run, with addresses by the number of their buffer.
std::vector<std::byte> bind_params(const Launch& launch, std::int64_t tokens,
                                   const std::vector<void*>& addresses, const EncodeMap& encode);

// The parameters of a launch that takes several rows. `addresses` has those of each row.
std::vector<std::byte> bind_rows(const Launch& launch,
                                 std::span<const std::vector<void*>> addresses,
                                 const EncodeMap& encode);

// Binds the launches one after the other and gives each to `run`: the loop of the gate, the lab and
// the engine.
using RunLaunch = std::function<void(const Launch& launch, std::span<const std::byte> params)>;
void launch_all(std::span<const Launch> launches, std::int64_t tokens,
                const std::vector<void*>& addresses, const EncodeMap& encode, const RunLaunch& run);

}  // namespace ac
