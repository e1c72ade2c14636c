// One GEMV launch on the host device against a loop in double precision.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/gemv.cuh"
#include "kernels/shim/host_launch.h"

namespace ac::kernels {

struct GemvCase {
  const char* name = "";
  GemvOp op = {};
  GemvPlan plan = {};
  void (*kernel)(GemvParams) = nullptr;
  std::vector<int> rows = {};  // of each matrix; of gate and up: one number
  int k = 0;
  bool interleaved = false;  // the pair's rows alternate in one matrix
  float norm_offset = 0, scale = 1, softcap = 0;
  int sms = 2;
  Schedule schedule = Schedule::shuffled;
  unsigned seed = 1;
  bool check_races = false;
};

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

// Runs the case; returns what is wrong, or "". `output_bytes` gets the outputs as they are.
std::string run_gemv(const GemvCase& c, std::string* output_bytes = nullptr);

}  // namespace ac::kernels
