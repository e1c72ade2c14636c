// What every kernel family's plan is made of. Plain constexpr C++: planner, generator and kernels
// (nvcc, NVRTC and the host compiler) all include it.
#pragma once

// All fields of a struct, after its name: host code makes text of them (src/generate/plan_text.h).
#define AC_FIELDS(Struct, ...)                            \
  template <class Visit>                                  \
  constexpr auto fields(const Visit& visit) const {       \
    return visit(#Struct ", " #__VA_ARGS__, __VA_ARGS__); \
  }

namespace ac::kernels {

// The first elements of an array among fields: those that count.
template <class T, int N>
struct FirstOf {
  const T (&all)[N];
  int count;
};

// Each enumeration's name, then its members in order, for the same.
enum class Type : unsigned char { f32, f16, bf16 };
constexpr const char* names_of(Type) { return "Type, f32, f16, bf16"; }

constexpr int bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

// How a weight that is read once treats the caches.
enum class Cache : unsigned char {
  streaming,    // ld.cs: likely used once
  no_allocate,  // past L1, L2 fetches 256 bytes at a time
  evict_first,  // past L1, first to leave L2, so that activations and KV stay
};
constexpr const char* names_of(Cache) { return "Cache, streaming, no_allocate, evict_first"; }

// What becomes of two matrices of equal shape (gate and up): y = act(gate) * up.
enum class Pair : unsigned char { none, swiglu, geglu_tanh, geglu_erf };
constexpr const char* names_of(Pair) { return "Pair, none, swiglu, geglu_tanh, geglu_erf"; }

// How attention and mma_gemm multiply.
enum class Tile : unsigned char {
  scalar,  // plain arithmetic: any type and shape
  mma,     // tensor cores: 16-bit types, head dimensions in whole fragments
  wgmma,   // the same by four warps at once, from shared memory: sm_90a, many tokens
};
constexpr const char* names_of(Tile) { return "Tile, scalar, mma, wgmma"; }

constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int divide_up(int value, int by) { return (value + by - 1) / by; }

// Bytes from row to row of a tile in shared memory whose rows are of so many 16-byte chunks, such
// that eight rows' chunks of one column are never in one bank: a power of two is swizzled (see
// mma_tile.cuh), anything else padded to an odd number.
constexpr int power_of_two_from(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}
constexpr bool is_power_of_two(int value) { return value > 0 && (value & (value - 1)) == 0; }
constexpr int tile_row_bytes(int chunks) {
  return 16 * (is_power_of_two(chunks) ? chunks : chunks | 1);
}

}  // namespace ac::kernels
