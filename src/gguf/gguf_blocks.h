// The types of GGUF's tensors: of each, how many elements a block has and how many bytes, and what
// the elements are. They are those that `gguf.quants.dequantize` of llama.cpp's Python package
// gives, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ac {

struct BlockType {
  std::uint32_t id;  // in files
  std::string_view name;
  std::size_t elements, bytes;  // of a block
  // Gives a block's elements. Null: nobody here reads this type.
  void (*read)(const std::byte* block, float* elements) = nullptr;
};

// Null: no type has this number.
const BlockType* find_block_type(std::uint32_t id);

}  // namespace ac
