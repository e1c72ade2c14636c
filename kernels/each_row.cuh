// Kernels that run once for each row of a step of several sequences, in one launch: a block does
// what the same kernel for one row does, with the parameters of the row blockIdx.z. Nothing of its
// arithmetic is another, and rows share no memory that they write.
//
// Source that is made for this (src/generate/each_row.h) has AC_KERNEL_ENTRY mean AC_ENTRY_OF_ROWS,
// AC_ROWS say for how many rows, and AC_OF_ROWS be true.
#pragma once

#include "kernels/types.cuh"

namespace ac::kernels {

template <int count>
struct RowsOf {
  template <class Params>
  struct Each {
    Params row[count];
  };
};

}  // namespace ac::kernels

#define AC_PARAMS_OF_ROWS(Params) ::ac::kernels::RowsOf<AC_ROWS>::Each<Params>
#define AC_BODY_OF_ROW(Params, ...)            \
  const Params& of_row = p.row[blockIdx.z];    \
  {                                            \
    [[maybe_unused]] const Params& p = of_row; \
    __VA_ARGS__;                               \
  }
#ifdef AC_HOST_DEVICE
#define AC_ENTRY_OF_ROWS(name, Params, threads, min_blocks, ...)       \
  AC_CLUSTER_KERNEL_ENTRY(name, AC_PARAMS_OF_ROWS(Params), threads, 1, \
                          AC_BODY_OF_ROW(Params, __VA_ARGS__))
#else
#define AC_ENTRY_OF_ROWS(name, Params, threads, min_blocks, ...)    \
  extern "C" __global__ void __launch_bounds__(threads, min_blocks) \
      name(const __grid_constant__ AC_PARAMS_OF_ROWS(Params) p){    \
          AC_BODY_OF_ROW(Params, __VA_ARGS__)} AC_PARAMS_BYTES(name, AC_PARAMS_OF_ROWS(Params))
#endif
