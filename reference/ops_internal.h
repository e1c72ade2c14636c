// The evaluators by kind; evaluate_op (ops.cc) is the only caller.
#pragma once

#include "reference/ops.h"

namespace ac {

// layout.cc
Value reshape(const Call& call);
Value permute(const Call& call);
Value expand(const Call& call);
Value slice(const Call& call);
Value concat(const Call& call);
Value triangle(const Call& call);
// `value` as an input that broadcasts to `shape`.
Value broadcast_to(const Value& value, const Sizes& shape);

// reduce.cc
Value reduce(const Call& call);
Value softmax(const Call& call);
Value rms_norm(const Call& call);
Value layer_norm(const Call& call);

// linear.cc
Value linear(const Call& call);
Value matmul(const Call& call);
Value embedding(const Call& call);

// attention.cc
Value rope(const Call& call);
Value attention(const Call& call);
Value append_attend(const Call& call);

// simd.cc
template <typename Number>
struct Matrix {
  const Number* data;
  std::int64_t rows, columns, stride;  // elements from a row to the next
  const Number* row(std::int64_t i) const { return data + i * stride; }
};
// The products of each row with a vector, to out[0], out[stride], ...: in double, or in float.
void dots(const Matrix<double>& a, const double* b, double* out, std::int64_t stride);
void dots(const Matrix<float>& a, const float* b, double* out, std::int64_t stride);
void narrow(const double* from, std::int64_t size, float* to);
void add_scaled(double* sum, double factor, const double* x, std::int64_t size);
// The same in the arithmetic that is asked for.
void add_scaled(Arithmetic arithmetic, double* sum, double factor, const double* x,
                std::int64_t size);

}  // namespace ac
