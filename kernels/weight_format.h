// How the numbers of a weight matrix are stored, beside the element type that they mean: what a
// kernel must know of it. src/base/weight_format.h says of each which tensors it is made of.
#pragma once

#include "kernels/plan.h"

namespace ac::kernels {

enum class Format : unsigned char {
  plain,      // elements of the type itself
  fp8_block,  // E4M3 codes, and a float32 scale for each block of 128 x 128
};
constexpr const char* names_of(Format) { return "Format, plain, fp8_block"; }

struct FormatBlocks {
  int code_bits;      // of an element; 0: as many as its type has
  int rows, columns;  // elements that share a scale, fewer at the edges; 0: there are no scales
};

constexpr FormatBlocks blocks_of(Format format) {
  switch (format) {
    case Format::plain:
      break;
    case Format::fp8_block:
      return {8, 128, 128};
  }
  return {0, 0, 0};
}
constexpr int code_bits(Format format, Type type) {
  const int bits = blocks_of(format).code_bits;
  return bits > 0 ? bits : 8 * bytes_of(type);
}
// Of a matrix of n rows of k elements, with its scales.
constexpr double weight_bytes(Format format, Type type, double n, double k) {
  const FormatBlocks blocks = blocks_of(format);
  const double scales = blocks.rows > 0 ? n * k / (double(blocks.rows) * blocks.columns) : 0;
  return n * k * code_bits(format, type) / 8 + scales * 4;
}

}  // namespace ac::kernels
