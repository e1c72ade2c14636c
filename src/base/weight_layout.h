// How the checkpoints of each publisher store the parts of a weight (base/weight_format.h), and how
// a part is made from what they store. Whoever reads such a part from a file reads it here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/weight_format.h"

namespace ac {

enum class FileLayout : std::uint8_t {
  fine_grained,  // transformers' FP8
  compressed,    // compressed-tensors, a code an element
  packed,        // compressed-tensors, codes in words
  awq,           // AutoAWQ's GEMM
  gptq,
  gptq_v2,     // v1 stores zero points minus one
  packed_fp4,  // compressed-tensors, E2M1
  modelopt,    // E2M1
  gguf,        // parts of the blocks of a GGUF file's tensor, as checkpoint/ takes them apart
};

// How a part lies in a tensor of a checkpoint.
struct StoredPart {
  // How a tensor stores codes or zero points: I32 words of several, the first one in the lowest
  // bits; one an element (none); or bytes as a part has them.
  enum class Words : std::uint8_t { none, along_rows, along_columns, bytes };

  std::string_view suffix;    // of the tensor's name, behind the module's
  bool transposed = false;    // [columns, rows]
  Words words = Words::none;  // along which axis of the matrix
  bool interleaved = false;   // the codes of a word are of columns 0, 2, 4, 6, 1, 3, 5, 7
  int added = 0;              // to what is stored
  bool inverse = false;       // what is stored is 1 / it, one float
};

struct WeightLayout {
  FileLayout layout;
  std::string_view name;  // in graphs and program.json
  StoredPart codes, scales, zeros, global = {}, groups = {}, outer = {}, high = {};

  const StoredPart& part(WeightPart::Kind kind) const;
};

const WeightLayout& layout_traits(FileLayout layout);
// Whether a checkpoint in this layout can store the format.
bool can_store(FileLayout layout, const Format& format);
// Null: no layout has this name.
const WeightLayout* find_layout(std::string_view name);

// One part of a weight, and how its checkpoint stores it. Shapes are the part's; `stored` is the
// whole tensor of the file.
struct PartInFile {
  Format format;
  FileLayout layout = FileLayout::fine_grained;
  std::int32_t part = 0;

  bool operator==(const PartInFile&) const = default;
  WeightPart traits_of_part() const { return traits(format).parts[static_cast<std::size_t>(part)]; }
  std::vector<std::int64_t> stored_shape(std::span<const std::int64_t> shape) const;
  // A scale may be of another floating-point type.
  DType stored_dtype() const;
  bool is_as_stored(std::span<const std::int64_t> shape) const;
  // Makes rows begin .. end-1 of the part. Scales keep the file's type, of `element_bytes`.
  void read(std::span<const std::int64_t> shape, const std::byte* stored, std::size_t element_bytes,
            std::int64_t begin, std::int64_t end, std::byte* out) const;
};

}  // namespace ac
