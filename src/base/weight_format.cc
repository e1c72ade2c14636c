#include "base/weight_format.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ac {
namespace {

// A random byte, read as E4M3, is about 100 (root mean square); normal values of this size do not
// overflow.
constexpr double kTypicalCode = 64;

std::vector<WeightFormat> make_table() {
  using Kind = WeightPart::Kind;
  constexpr kernels::FormatBlocks blocks = kernels::blocks_of(Format::fp8_block);
  return {{Format::plain, "plain", {{}}},
          {Format::fp8_block,
           "fp8_block",
           {{.kind = Kind::codes, .dtype = DType::f8e4m3},
            {.kind = Kind::scales,
             .key = "scales",
             .file_suffix = "_scale_inv",
             .dtype = DType::f32,
             .block_rows = blocks.rows,
             .block_columns = blocks.columns}}}};
}

}  // namespace

std::vector<std::int64_t> WeightPart::shape(std::span<const std::int64_t> of_matrix) const {
  if (kind == Kind::elements) return {of_matrix.begin(), of_matrix.end()};
  AC_ASSERT(of_matrix.size() == 2);
  return {(of_matrix[0] + block_rows - 1) / block_rows,
          (of_matrix[1] + block_columns - 1) / block_columns};
}

std::int64_t WeightFormat::bytes(std::span<const std::int64_t> shape, DType dtype) const {
  std::int64_t sum = 0;
  for (const WeightPart& part : parts) {
    auto size = static_cast<std::int64_t>(bytes_of(is_plain() ? dtype : part.dtype));
    for (const std::int64_t of_axis : part.shape(shape)) size *= of_axis;
    sum += size;
  }
  return sum;
}

void WeightFormat::read(std::span<const std::int64_t> shape, std::int64_t first, std::int64_t count,
                        const ReadPart& read_part, double* out) const {
  read_part(0, first, count, out);
  for (std::size_t p = 1; p < parts.size(); ++p) {
    const WeightPart& part = parts[p];
    const std::int64_t columns = shape[1], scales = part.shape(shape)[1];
    std::vector<double> scale(static_cast<std::size_t>(scales));
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t row = (first + done) / columns, begin = (first + done) % columns;
      const std::int64_t end = std::min(columns, begin + count - done);
      read_part(p, row / part.block_rows * scales, scales, scale.data());
      for (std::int64_t column = begin; column < end; ++column)
        out[done++] *= scale[static_cast<std::size_t>(column / part.block_columns)];
    }
  }
}

double WeightFormat::typical(const WeightPart& part, std::int64_t columns) const {
  const double element = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(columns, 1)));
  switch (part.kind) {
    case WeightPart::Kind::elements:
      return element;
    case WeightPart::Kind::codes:
      return kTypicalCode;
    case WeightPart::Kind::scales:
      return element / kTypicalCode;
  }
  AC_UNREACHABLE();
}

std::span<const WeightFormat> weight_formats() {
  static const std::vector<WeightFormat> table = make_table();
  return table;
}

const WeightFormat& traits(Format format) {
  return weight_formats()[static_cast<std::size_t>(format)];
}

const WeightFormat* find_format(std::string_view name) {
  const auto all = weight_formats();
  const auto found = std::ranges::find(all, name, &WeightFormat::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace ac
