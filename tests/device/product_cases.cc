// Products of a device's library against double precision.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/device/device_cases.h"

namespace ac::test {
namespace {

using Numbers = std::vector<double>;

// Numbers in the device's memory, with a row of others behind them.
class Matrix {
 public:
  static constexpr std::size_t kGuard = 512;

  Matrix(Device& device, DType dtype, std::size_t count)
      : device_(device),
        dtype_(dtype),
        count_(count),
        memory_(device.allocate(count * bytes_of(dtype) + kGuard)) {
    device.fill(address(), memory_->bytes(), 0x3b);
  }
  Matrix(Device& device, DType dtype, const Numbers& numbers)
      : Matrix(device, dtype, numbers.size()) {
    std::vector<std::byte> bytes(count_ * bytes_of(dtype));
    for (std::size_t i = 0; i < count_; ++i)
      store_element(dtype, numbers[i], bytes.data() + i * bytes_of(dtype));
    device.upload(address(), bytes);
  }

  void* address() const { return memory_->address(); }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(memory_->bytes());
    device_.download(all, address());
    return all;
  }
  Numbers numbers() const {
    const std::vector<std::byte> all = bytes();
    Numbers found;
    for (std::size_t i = 0; i < count_; ++i)
      found.push_back(load_element(dtype_, all.data() + i * bytes_of(dtype_)));
    return found;
  }
  bool is_guarded() const {
    const std::vector<std::byte> all = bytes();
    for (std::size_t i = all.size() - kGuard; i < all.size(); ++i)
      if (all[i] != std::byte{0x3b}) return false;
    return true;
  }

 private:
  Device& device_;
  DType dtype_;
  std::size_t count_;
  std::unique_ptr<Device::Memory> memory_;
};

class ProductCase {
 public:
  ProductCase(Device& device, const Product& product, std::size_t most)
      : device_(device), product_(product), kernel_(device.load_product(product)) {
    const auto pitch = static_cast<std::size_t>(product.x_pitch);
    x_ = random(most * pitch, 1);
    weight_ = random(n() * k(), 1 / std::sqrt(static_cast<double>(product.k)));
    bias_ = random(n(), 1), residual_ = random(most * n(), 2);
  }

  void check(std::size_t m) {
    CAPTURE(name_of(product_));
    CAPTURE(product_.n);
    CAPTURE(product_.k);
    CAPTURE(m);
    const DType dtype = product_.dtype;
    const Matrix x(device_, dtype, x_), weight(device_, dtype, weight_),
        bias(device_, dtype, bias_), residual(device_, dtype, residual_),
        y(device_, dtype, m * n()), again(device_, dtype, m * n());
    ProductParams params{x.address(),
                         weight.address(),
                         product_.bias ? bias.address() : nullptr,
                         product_.residual ? residual.address() : nullptr,
                         y.address(),
                         static_cast<std::int64_t>(m)};
    launch(params);
    device_.synchronize();
    compare(y.numbers(), m);
    CHECK(y.is_guarded());
    // Recorded, and as often as one likes: the same bits.
    params.y = again.address();
    const auto recording = device_.record([&] { launch(params); });
    recording->replay();
    recording->replay();
    device_.synchronize();
    CHECK(again.bytes() == y.bytes());
  }

 private:
  std::size_t n() const { return static_cast<std::size_t>(product_.n); }
  std::size_t k() const { return static_cast<std::size_t>(product_.k); }

  void launch(const ProductParams& params) const {
    device_.launch(*kernel_, {}, std::as_bytes(std::span(&params, 1)));
  }

  Numbers random(std::size_t count, double scale) {
    std::normal_distribution<double> normal(0, scale);
    Numbers numbers(count);
    for (double& number : numbers) number = round_to(product_.dtype, normal(random_));
    return numbers;
  }

  // Sums are of float32, in any order; what is stored is rounded once.
  void compare(const Numbers& y, std::size_t m) const {
    const double rounding = product_.dtype == DType::f32    ? 0x1p-23
                            : product_.dtype == DType::bf16 ? 0x1p-8
                                                            : 0x1p-11;
    double worst = 0;
    for (std::size_t row = 0; row < m; ++row)
      for (std::size_t column = 0; column < n(); ++column) {
        double sum = 0, size = 0;
        for (std::size_t i = 0; i < k(); ++i) {
          const double term =
              x_[row * static_cast<std::size_t>(product_.x_pitch) + i] * weight_[column * k() + i];
          sum += term, size += std::abs(term);
        }
        sum *= product_.scale;
        if (product_.bias) sum += bias_[column];
        if (product_.residual) sum += residual_[row * n() + column];
        const double bound = rounding * std::abs(sum) + 1e-5 * (size + std::abs(sum)) + 1e-7;
        // A NaN is no smaller than anything.
        const double error = std::abs(y[row * n() + column] - sum) / bound;
        if (!(error <= worst)) worst = error;
      }
    CHECK(worst <= 1);
  }

  Device& device_;
  const Product product_;
  std::unique_ptr<Device::Kernel> kernel_;
  Numbers x_, weight_, bias_, residual_;
  std::mt19937_64 random_{20261121};
};

}  // namespace

void check_products(Device& device, bool is_large) {
  struct Sizes {
    std::int64_t n, k, gap;
  };
  const std::size_t most = is_large ? 300 : 9;
  const auto tuned = static_cast<std::int64_t>(most);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    for (const Sizes& s : is_large
                              ? std::vector<Sizes>{{512, 1024, 0}, {264, 328, 56}, {77, 131, 0}}
                              : std::vector<Sizes>{{16, 32, 0}, {7, 13, 3}})
      for (const bool bias : {false, true})
        for (const bool residual : {false, true}) {
          if (is_large && bias && s.n == 77) continue;  // refused, as the GPU tests show
          ProductCase c(device,
                        {.dtype = dtype,
                         .n = s.n,
                         .k = s.k,
                         .x_pitch = s.k + s.gap,
                         .bias = bias,
                         .residual = residual,
                         .scale = bias ? 1 : 0.375,
                         .tuned_m = tuned,
                         .tuned_n = s.n},
                        most);
          for (const std::size_t m : {most, most - 5, most / 3, std::size_t{1}}) c.check(m);
        }
  CHECK(device.product_bytes() == 0);  // it has been taken
}

}  // namespace ac::test
