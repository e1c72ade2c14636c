// Inputs and outputs of kernels in tests: at any alignment, poisoned, guarded, and compared with
// the truth.
#pragma once

#include <cmath>

#include "base/dtype.h"
#include "tests/unit/elements.h"

namespace ac::kernels {

// `count` elements, `skip` elements into their memory, so that they need not start at 16 bytes. The
// memory ends with the last element.
class Input {
 public:
  Input(Type type, std::size_t count, std::size_t skip = 0)
      : elements_(type, skip + count), skip_(skip) {}
  // Uniform values, of all of which `before` is a copy.
  Input(Type type, std::size_t count, std::size_t skip, std::mt19937& random, float low, float high)
      : Input(type, count, skip) {
    elements_.fill(random, low, high);
    remember();
  }
  void* data() { return elements_.at(skip_); }
  double get(std::size_t i) const { return elements_.get(skip_ + i); }
  void set(std::size_t i, float value) { elements_.set(skip_ + i, value); }
  void remember() { before_ = elements_.bytes(); }
  bool unchanged() const { return elements_.bytes() == before_; }

 private:
  Elements elements_;
  std::size_t skip_;
  std::string before_;
};

// `count` elements that are NaN until written, between canaries.
class Output {
 public:
  Output(Type type, std::size_t count, std::size_t skip = 0)
      : elements_(type, margin + skip + count + margin), skip_(margin + skip), count_(count) {
    for (std::size_t i = 0; i < elements_.size(); ++i)
      if (i < skip_ || i >= skip_ + count) elements_.set(i, canary);
  }
  void* data() { return elements_.at(skip_); }
  double get(std::size_t i) const { return elements_.get(skip_ + i); }
  void set(std::size_t i, float value) { elements_.set(skip_ + i, value); }
  std::string bytes() const { return elements_.bytes(); }
  bool intact() const {
    for (std::size_t i = 0; i < elements_.size(); ++i)
      if ((i < skip_ || i >= skip_ + count_) && elements_.get(i) != canary) return false;
    return true;
  }

 private:
  static constexpr std::size_t margin = 16;
  static constexpr float canary = 12.5f;
  Elements elements_;
  std::size_t skip_, count_;
};

// Whether a kernel that may be off by `error` before it rounds to `type` can have got this.
inline bool is_close(Type type, double got, double want, double error) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  const DType dtype = dtype_of(type);
  if (std::isinf(want)) error = 0;
  return round_to(dtype, want - error) <= got && got <= round_to(dtype, want + error);
}

// Values that break careless code, in turn.
inline float hostile(std::size_t i) {
  const float values[] = {0.f,    -0.f,    INFINITY, -INFINITY, NAN,  3e38f, -3e38f, 65504.f,
                          1e-40f, -1e-45f, 1e-8f,    1.f,       -1.f, 88.7f, -88.7f, 1e4f};
  return values[i % (sizeof values / sizeof *values)];
}

inline bool says(const char* reason, const char* word) {
  return reason != nullptr && std::string(reason).find(word) != std::string::npos;
}

}  // namespace ac::kernels
