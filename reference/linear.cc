#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "reference/ops_internal.h"
#include "reference/parallel.h"
#include "reference/strides.h"

namespace ac {

Value linear(const Call& call) {
  const Value& x = call[0];
  const Operand& weight = call.inputs[1];
  const double* bias = call.inputs.size() > 2 ? call[2].data.data() : nullptr;
  const std::int64_t outputs = weight.shape()[0], inner = weight.shape()[1];
  Value result = call.result();
  const std::int64_t tokens = outputs == 0 ? 0 : element_count(call.shape) / outputs;
  const bool is_plain = call.arithmetic != Arithmetic::exact;
  const bool has_elements = call.arithmetic == Arithmetic::elements;
  const DType weight_type = call.graph.type(call.node().inputs[1]).dtype;
  std::vector<float> singles(is_plain ? x.data.size() : 0);
  narrow(x.data.data(), static_cast<std::int64_t>(singles.size()), singles.data());
  // A weight row is converted once for all tokens.
  const std::int64_t grain = 1 + (1 << 15) / (1 + inner * tokens);
  parallel_for(call.threads, outputs, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> scratch;
    std::vector<float> single(is_plain ? static_cast<std::size_t>(inner) : 0);
    for (std::int64_t row = begin; row < end; ++row) {
      const double* w = weight.read(row * inner, inner, scratch);
      double* const out = result.data.data() + row;
      if (is_plain) {
        narrow(w, inner, single.data());
        if (has_elements)
          for (float& element : single)
            element = static_cast<float>(round_by_float(weight_type, element));
        dots({singles.data(), tokens, inner, inner}, single.data(), out, outputs);
      } else {
        dots({x.data.data(), tokens, inner, inner}, w, out, outputs);
      }
      if (bias)
        for (std::int64_t token = 0; token < tokens; ++token) out[token * outputs] += bias[row];
    }
  });
  return result;
}

Value matmul(const Call& call) {
  const Operand& b = call.inputs[1];
  const std::int64_t inner = call[0].shape.back();
  const std::int64_t rows = call.shape[call.shape.size() - 2], columns = call.shape.back();
  Value result = call.result();
  if (result.data.empty()) return result;

  // Which matrix of each input belongs to a matrix of the result: strides in matrices.
  const Sizes batch(call.shape.begin(), call.shape.end() - 2);
  const auto matrices = [&](const Sizes& shape) {
    const Value numbers = [&] {
      Value value{DType::i64, Sizes(shape.begin(), shape.end() - 2), {}};
      for (std::int64_t i = 0; i < element_count(value.shape); ++i)
        value.data.push_back(static_cast<double>(i));
      return value;
    }();
    return broadcast_to(numbers, batch).data;
  };
  const std::vector<double> a_matrix = matrices(call[0].shape), b_matrix = matrices(b.shape());

  // Columns in blocks: a block of the result stays in the cache while it is summed, and a piece of
  // a row of b is converted once for all rows.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t blocks = (columns + kColumns - 1) / kColumns;
  const std::int64_t units = static_cast<std::int64_t>(a_matrix.size()) * blocks;
  const std::int64_t grain = 1 + (1 << 15) / (1 + rows * inner * kColumns);
  parallel_for(call.threads, units, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> scratch;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const auto matrix = static_cast<std::size_t>(unit / blocks);
      const std::int64_t first = unit % blocks * kColumns;
      const std::int64_t width = std::min(kColumns, columns - first);
      const auto a_at = static_cast<std::int64_t>(a_matrix[matrix]) * rows * inner;
      const auto b_at = static_cast<std::int64_t>(b_matrix[matrix]) * inner * columns + first;
      const double* a = call[0].data.data() + a_at;
      double* out = result.data.data() + static_cast<std::int64_t>(matrix) * rows * columns + first;
      for (std::int64_t k = 0; k < inner; ++k) {
        const double* piece = b.read(b_at + k * columns, width, scratch);
        for (std::int64_t row = 0; row < rows; ++row)
          add_scaled(call.arithmetic, out + row * columns, a[row * inner + k], piece, width);
      }
    }
  });
  return result;
}

Value embedding(const Call& call) {
  const Operand& table = call.inputs[0];
  const Value& ids = call[1];
  const std::int64_t rows = table.shape()[0];
  const std::int64_t size = element_count(Sizes(table.shape().begin() + 1, table.shape().end()));
  for (const double id : ids.data)
    if (!(id >= 0 && id < static_cast<double>(rows)))
      bad_input("{}: id {} is outside the table {} of {} rows", call.where(),
                static_cast<std::int64_t>(id), describe(call.graph, call.node().inputs[0]), rows);
  Value result = call.result();
  std::vector<double> scratch;
  for (std::size_t i = 0; i < ids.data.size(); ++i) {
    const double* row = table.read(static_cast<std::int64_t>(ids.data[i]) * size, size, scratch);
    std::copy_n(row, size, result.data.begin() + static_cast<std::ptrdiff_t>(i) * size);
  }
  return result;
}

}  // namespace ac
