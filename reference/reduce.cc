#include <cmath>

#include "reference/ops_internal.h"
#include "reference/parallel.h"
#include "reference/strides.h"

namespace ac {

Value reduce(const Call& call) {
  const Value& x = call[0];
  const Op op = call.node().op;
  Sizes kept = x.shape;
  for (const std::int64_t axis : call.node().integers("axes"))
    kept[static_cast<std::size_t>(axis)] = 1;
  Sizes strides = strides_of(kept);
  for (std::size_t axis = 0; axis < kept.size(); ++axis)
    if (kept[axis] != x.shape[axis]) strides[axis] = 0;

  Value result = call.result();
  if (op == Op::amax) result.data.assign(result.data.size(), -INFINITY);
  auto next = x.data.begin();
  walk(x.shape, strides, 0, [&](std::int64_t offset) {
    double& total = result.data[static_cast<std::size_t>(offset)];
    const double element = *next++;
    if (op != Op::amax)
      total += element;
    else if (!(element <= total) && !std::isnan(total))
      total = element;
  });
  if (op == Op::mean) {
    double divisor = 1;
    for (std::size_t axis = 0; axis < kept.size(); ++axis)
      if (kept[axis] != x.shape[axis]) divisor *= static_cast<double>(x.shape[axis]);
    for (double& element : result.data) element /= divisor;
  }
  return result;
}

Value softmax(const Call& call) {
  const Value& x = call[0];
  const auto axis = static_cast<std::size_t>(call.node().integer("axis"));
  const std::int64_t size = x.shape[axis], stride = strides_of(x.shape)[axis];
  Value result = call.result();
  if (result.data.empty()) return result;
  const std::int64_t lines = element_count(x.shape) / size;
  parallel_for(call.threads, lines, 1 + 4096 / size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t first = line / stride * stride * size + line % stride;
      const double* in = x.data.data() + first;
      double* out = result.data.data() + first;
      double largest = -INFINITY, total = 0;
      for (std::int64_t i = 0; i < size; ++i) largest = std::fmax(largest, in[i * stride]);
      for (std::int64_t i = 0; i < size; ++i)
        total += out[i * stride] = std::exp(in[i * stride] - largest);
      for (std::int64_t i = 0; i < size; ++i) out[i * stride] /= total;
    }
  });
  return result;
}

Value rms_norm(const Call& call) {
  const Value& x = call[0];
  const double eps = call.node().number("eps"), offset = call.node().number("weight_offset");
  const double* weight = call.inputs.size() > 1 ? call[1].data.data() : nullptr;
  const std::int64_t size = x.shape.back();
  Value result = call.result();
  for (std::size_t first = 0; first < x.data.size(); first += static_cast<std::size_t>(size)) {
    const double* in = x.data.data() + first;
    double* out = result.data.data() + first;
    double squares = 0;
    for (std::int64_t i = 0; i < size; ++i) squares += in[i] * in[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + eps);
    for (std::int64_t i = 0; i < size; ++i)
      out[i] = in[i] * scale * (weight ? offset + weight[i] : 1.0);
  }
  return result;
}

Value layer_norm(const Call& call) {
  const Value& x = call[0];
  const double eps = call.node().number("eps");
  const double* weight = call.inputs.size() > 1 ? call[1].data.data() : nullptr;
  const double* bias = call.inputs.size() > 2 ? call[2].data.data() : nullptr;
  const std::int64_t size = x.shape.back();
  Value result = call.result();
  for (std::size_t first = 0; first < x.data.size(); first += static_cast<std::size_t>(size)) {
    const double* in = x.data.data() + first;
    double* out = result.data.data() + first;
    double total = 0, squares = 0;
    // What a row's elements have in common goes with the mean, and leaves the rounding of sums.
    for (std::int64_t i = 0; i < size; ++i) total = call.in_float(total + in[i]);
    const double mean = call.in_float(total / static_cast<double>(size));
    for (std::int64_t i = 0; i < size; ++i) squares += (in[i] - mean) * (in[i] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + eps);
    for (std::int64_t i = 0; i < size; ++i)
      out[i] = (in[i] - mean) * scale * (weight ? weight[i] : 1.0) + (bias ? bias[i] : 0.0);
  }
  return result;
}

}  // namespace ac
