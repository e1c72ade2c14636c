// A matrix of 16-bit elements as the copy engine of sm_90 sees it, which then brings boxes of it
// into shared memory (tensor_map.cuh). A kernel gets it by value among its parameters.
#pragma once

namespace ac::kernels {

// What a map is made of. Boxes have panels of 64 columns, rows of 128 bytes; what a box has outside
// of the matrix comes as zeros. With one panel a map has two dimensions: columns and rows. With
// more it has three, {64, rows, columns / 64}: a box is its panels one after another,
// [box_rows][128 bytes] each, and columns are whole panels.
struct MatrixView {
  const void* base;  // of row 0, at a multiple of 16 bytes
  long long rows;
  long long columns;
  long long pitch;  // elements from row to row, in whole 16 bytes
  int box_rows;     // 1 to 256; in whole eights if there are more panels than one
  int box_panels = 1;
  int bf16;  // or f16: what the engine is told the elements are
};

// The driver's CUtensorMap on a GPU, which wants it at a multiple of 64 bytes; a MatrixView and
// zeros on the host device.
#ifdef __CUDACC__
struct alignas(64) TensorMap {
#else
struct TensorMap {
#endif
  unsigned char bytes[128];
};
static_assert(sizeof(MatrixView) <= sizeof(TensorMap));

}  // namespace ac::kernels
