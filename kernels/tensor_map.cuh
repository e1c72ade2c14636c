// Boxes of matrices that the copy engine of sm_90 brings into shared memory, for all blocks of a
// cluster that want them: PTX, as in ptx.cuh, and what it means on the host device. There a block
// is alone in its cluster: what others would bring, it brings itself.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/tensor_map.h"
#ifdef AC_HOST_DEVICE
#include <cstring>
#include <vector>
#endif

namespace ac::kernels {

#ifdef AC_HOST_DEVICE

constexpr bool clusters_share = false;

inline void barrier_init(CopyBarrier* barrier, int arrivals) {
  host::barrier_init(barrier, static_cast<unsigned>(arrivals));
}
inline void barrier_arrive(CopyBarrier* barrier, int) { host::barrier_arrive(barrier); }
inline void prefetch_map(const TensorMap*) {}
template <int blocks>
void meet_cluster() {
  __syncthreads();
}

// The box at a row and a column (of 64), its rows of 128 bytes swizzled as PanelRows has them.
template <bool shared_out>
void copy_box(unsigned char* to, const TensorMap* map, int column, int row, CopyBarrier* barrier,
              unsigned, bool, host::Place place = host::Place::current()) {
  MatrixView view;
  std::memcpy(&view, map->bytes, sizeof view);
  if (reinterpret_cast<std::uintptr_t>(to) % 1024 != 0)
    host::fail("a box does not start at a multiple of 1024 bytes", place);
  if (reinterpret_cast<std::uintptr_t>(view.base) % 16 != 0 || view.pitch % 8 != 0)
    host::fail("a matrix's rows do not start at multiples of 16 bytes", place);
  std::vector<unsigned char> box(static_cast<std::size_t>(view.box_rows) * 128, 0);
  for (int r = 0; r < view.box_rows && row + r < view.rows; ++r)
    for (int c = 0; c < 64 && column + c < view.columns; ++c)
      std::memcpy(
          box.data() + r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2,
          static_cast<const unsigned char*>(view.base) + 2 * ((row + r) * view.pitch + column + c),
          2);
  host::copy_bulk(to, box.data(), static_cast<unsigned>(box.size()), barrier, place);
}

#else

constexpr bool clusters_share = true;

AC_DEVICE void barrier_init(CopyBarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
// At the same barrier of the cluster's block `rank`. No data goes with it: a release to the cluster
// would cost a fence of the whole GPU.
AC_DEVICE void barrier_arrive(CopyBarrier* barrier, int rank) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b32 there;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
#endif
}
AC_DEVICE void prefetch_map(const TensorMap* map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}
// All threads of the cluster's blocks; barriers that were made visible are so to all of them.
template <int blocks>
AC_DEVICE void meet_cluster() {
  if constexpr (blocks == 1) {
    __syncthreads();
  } else {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
}

// With `shared_out`, to the same place of each block in `mask`, whose own barrier counts the bytes.
template <bool shared_out>
AC_DEVICE void copy_box(unsigned char* to, const TensorMap* map, int column, int row,
                        CopyBarrier* barrier, unsigned mask, bool once) {
#if __CUDA_ARCH__ >= 900
  unsigned long long policy = evict_first_policy();
  if (!once) asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  if constexpr (shared_out)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(
            shared_address(to)),
        "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)),
        "h"(static_cast<unsigned short>(mask)), "l"(policy)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
#endif
}

#endif

}  // namespace ac::kernels
