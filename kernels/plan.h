// What every kernel family's plan is made of. Plain constexpr C++: planner, generator and kernels
// (nvcc, NVRTC and the host compiler) all include it.
#pragma once

namespace ac::kernels {

enum class Type : unsigned char { f32, f16, bf16 };

constexpr int bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

// How a weight that is read once treats the caches.
enum class Cache : unsigned char {
  streaming,    // ld.cs: likely used once
  no_allocate,  // past L1, L2 fetches 256 bytes at a time
  evict_first,  // past L1, first to leave L2, so that activations and KV stay
};

constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int divide_up(int value, int by) { return (value + by - 1) / by; }

}  // namespace ac::kernels
