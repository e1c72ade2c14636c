// Tensors for kernels on the host device.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "kernels/shim/host_launch.h"
#include "kernels/types.cuh"

namespace ac::kernels {

inline DType dtype_of(Type type) {
  return type == Type::f32 ? DType::f32 : type == Type::f16 ? DType::f16 : DType::bf16;
}

// `count` elements in memory of exactly that size, 16-byte aligned as a GPU's would be.
class Elements {
 public:
  Elements(Type type, std::size_t count)
      : type_(type), count_(count), bytes_(count * bytes_of(type)) {
    if (posix_memalign(&data_, 16, bytes_) != 0) throw std::bad_alloc();
    std::memset(data_, 0xff, bytes_);
  }
  ~Elements() { std::free(data_); }
  Elements(Elements&& other) noexcept
      : type_(other.type_), count_(other.count_), bytes_(other.bytes_), data_(other.data_) {
    other.data_ = nullptr;
  }
  Elements& operator=(Elements&&) = delete;

  void* at(std::size_t i) { return static_cast<char*>(data_) + i * bytes_of(type_); }
  double get(std::size_t i) const {
    return load_element(dtype_of(type_), static_cast<const char*>(data_) + i * bytes_of(type_));
  }
  void set(std::size_t i, float value) {
    if (type_ == Type::f32) *static_cast<float*>(at(i)) = value;
    if (type_ == Type::f16) *static_cast<f16*>(at(i)) = from_float<f16>(value);
    if (type_ == Type::bf16) *static_cast<bf16*>(at(i)) = from_float<bf16>(value);
  }
  void fill(std::mt19937& random, float low, float high) {
    std::uniform_real_distribution<float> value(low, high);
    for (std::size_t i = 0; i < count_; ++i) set(i, value(random));
  }
  std::size_t size() const { return count_; }
  std::string bytes() const { return {static_cast<const char*>(data_), bytes_}; }

 private:
  Type type_;
  std::size_t count_, bytes_;
  void* data_ = nullptr;
};

}  // namespace ac::kernels
