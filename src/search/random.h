// Random numbers that are the same with every standard library, so that a seed means one search.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace ac::search {

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}

  std::uint64_t bits() { return bits_(); }
  // Below `bound`, which is not 0.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t whole = UINT64_MAX - UINT64_MAX % bound;
    for (;;)
      if (const std::uint64_t drawn = bits_(); drawn < whole) return drawn % bound;
  }
  std::size_t index(std::size_t size) { return static_cast<std::size_t>(below(size)); }
  double unit() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }  // below 1
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[index(i)]);
  }

 private:
  std::mt19937_64 bits_;
};

// A seed for one of several things that one seed stands for.
inline std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t what) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15u * (what + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace ac::search
