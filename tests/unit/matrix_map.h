// Maps of matrices as the host device has them, for launches whose maps nobody binds.
#pragma once

#include <cstring>

#include "kernels/plan.h"
#include "kernels/tensor_map.h"

namespace ac::kernels {

inline TensorMap matrix_map(Type type, const void* base, int rows, int columns, int pitch,
                            int box_rows, int box_panels = 1) {
  const MatrixView view{base, rows, columns, pitch, box_rows, box_panels, type == Type::bf16};
  TensorMap map{};
  std::memcpy(map.bytes, &view, sizeof view);
  return map;
}

}  // namespace ac::kernels
