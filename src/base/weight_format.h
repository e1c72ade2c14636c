// Weight formats: of each, the tensors that a matrix is made of, and how its elements are read from
// them. Whoever checks, fills or plans a weight asks this. How checkpoints store these tensors is
// said in base/weight_layout.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/weight_format.h"

namespace ac {

using kernels::Codes;
using kernels::Format;
using kernels::ScaleType;

struct WeightPart {
  enum class Kind : std::uint8_t { elements, codes, scales, zeros, global, groups, outer, high };
  Kind kind = Kind::elements;
  DType dtype = DType::f32;    // of plain elements, the weight's own
  int rows = 1, columns = 1;   // elements of the matrix that share one of it; 0: as many as it has
  int in_byte = 1;             // codes in one of it
  int each = 1;                // values of one of it: a scale, and its minimum
  double least = 0, most = 0;  // of whole numbers: the range that they are in

  std::vector<std::int64_t> shape(std::span<const std::int64_t> of_matrix) const;
  bool is_whole() const { return dtype == DType::u8; }
};

// The attributes of a weight that name the tensors of a checkpoint, by kind of part.
std::string_view key_of(WeightPart::Kind kind);

struct WeightFormat {
  Format format;
  std::string name;  // in graphs and program.json: "plain", "e4m3_128x128", "u4_g32_f16_zeros",
                     // "e2m1_g32_f8e8m0", "u4_g32_i8_in256_minima"
  std::vector<WeightPart> parts;

  bool is_plain() const { return format.is_plain(); }
  // Which of the parts is of this kind; none: the format has no such part.
  std::optional<std::size_t> index_of(WeightPart::Kind kind) const;
  std::int64_t bytes(std::span<const std::int64_t> shape, DType dtype) const;
  // Elements first .. first+count-1 of the matrix, exactly: as kernels/weight_format.h says.
  // `read_part` gives elements of a part.
  using ReadPart =
      std::function<void(std::size_t part, std::int64_t first, std::int64_t count, double* out)>;
  void read(std::span<const std::int64_t> shape, std::int64_t first, std::int64_t count,
            const ReadPart& read_part, double* out) const;
  // How large random elements of a part should be, so that products neither grow nor shrink what
  // they are given: `columns` are the matrix's. `which` of the values of one: a scale, or its
  // minimum, which takes away what codes are on average.
  double typical(const WeightPart& part, std::int64_t columns, int which = 0) const;
};

WeightFormat traits(const Format& format);
// Nothing: no format has this name.
std::optional<WeightFormat> find_format(std::string_view name);
// Why no matrix of this shape can be in the format, or nothing.
std::string why_impossible(const Format& format, std::span<const std::int64_t> shape);

DType dtype_of(kernels::ScaleType type);

}  // namespace ac
