// The table of weight formats: of each, the tensors of a checkpoint that a matrix is made of, and
// how its elements are read from them. Whoever reads, checks, fills or plans a weight asks this.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/weight_format.h"

namespace ac {

using kernels::Format;

struct WeightPart {
  enum class Kind : std::uint8_t { elements, codes, scales };
  Kind kind = Kind::elements;
  const char* key = "key";       // the attribute of a weight that has its name in the checkpoint
  const char* file_suffix = "";  // of that name, behind the weight's; "" for the first part
  DType dtype = DType::f32;      // of plain, the weight's own
  int block_rows = 1, block_columns = 1;  // elements of the matrix that share one of its

  std::vector<std::int64_t> shape(std::span<const std::int64_t> of_matrix) const;
};

struct WeightFormat {
  Format format;
  std::string_view name;  // in graphs and program.json
  std::vector<WeightPart> parts;

  bool is_plain() const { return format == Format::plain; }
  std::int64_t bytes(std::span<const std::int64_t> shape, DType dtype) const;
  // Elements first .. first+count-1 of the matrix, exactly: a code times its scale.
  // `read_part` gives elements of a part.
  using ReadPart =
      std::function<void(std::size_t part, std::int64_t first, std::int64_t count, double* out)>;
  void read(std::span<const std::int64_t> shape, std::int64_t first, std::int64_t count,
            const ReadPart& read_part, double* out) const;
  // How large random elements of a part should be, so that products neither grow nor shrink what
  // they are given: `columns` are the matrix's.
  double typical(const WeightPart& part, std::int64_t columns) const;
};

const WeightFormat& traits(Format format);
// Null: no format has this name.
const WeightFormat* find_format(std::string_view name);
std::span<const WeightFormat> weight_formats();

}  // namespace ac
