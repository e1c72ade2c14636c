// The types of GGUF's tensors: of each, how many elements a block has and how many bytes, what the
// elements are, and which parts of a weight (base/weight_format.h) a block has. Elements are those
// that `gguf.quants.dequantize` of llama.cpp's Python package gives, to the bit; of the parts they
// are the same, but for the rounding of float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/weight_format.h"

namespace ac {

// Where the parts of a block go; null: nobody asks for it.
struct BlockParts {
  std::byte *codes = nullptr, *scales = nullptr, *outer = nullptr, *high = nullptr;
};

struct BlockType {
  std::uint32_t id;  // in files
  std::string_view name;
  std::size_t elements, bytes;  // of a block
  // Gives a block's elements. Null: nobody here reads this type.
  void (*read)(const std::byte* block, float* elements) = nullptr;
  // The format of a matrix of this type; plain: it is read by elements alone.
  Format format = {};
  void (*split)(const std::byte* block, const BlockParts& to) = nullptr;

  // The bytes that a part has of a block.
  std::size_t part_bytes(WeightPart::Kind kind) const;
};

// Null: no type has this number.
const BlockType* find_block_type(std::uint32_t id);

}  // namespace ac
