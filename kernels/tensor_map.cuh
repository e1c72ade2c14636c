// Boxes of matrices that the copy engine of sm_90 brings into shared memory, for all blocks of a
// cluster that want them: PTX, as in ptx.cuh, and what it means on the host device.
#pragma once

#include "kernels/cluster.cuh"
#include "kernels/tensor_map.h"
#ifdef AC_HOST_DEVICE
#include <cstring>
#endif

namespace ac::kernels {

#ifdef AC_HOST_DEVICE

inline void prefetch_map(const TensorMap*) {}

inline void check_box(const unsigned char* to, const MatrixView& view, host::Place place) {
  if (reinterpret_cast<std::uintptr_t>(to) % 1024 != 0)
    host::fail("a box does not start at a multiple of 1024 bytes", place);
  if (reinterpret_cast<std::uintptr_t>(view.base) % 16 != 0 || view.pitch % 8 != 0)
    host::fail("a matrix's rows do not start at multiples of 16 bytes", place);
}

// The box at a row and a column (of 64), its rows of 128 bytes swizzled as PanelRows has them.
template <bool shared_out>
void copy_box(unsigned char* to, const TensorMap* map, int column, int row, CopyBarrier* barrier,
              unsigned mask, bool, host::Place place = host::Place::current()) {
  MatrixView view;
  std::memcpy(&view, map->bytes, sizeof view);
  check_box(to, view, place);
  if (view.box_panels > 1) host::fail("a map of three dimensions", place);
  struct {
    unsigned char* to;
    CopyBarrier* barrier;
  } targets[8] = {{to, barrier}};
  int count = shared_out ? 0 : 1;
  for (unsigned rank = 0; shared_out && rank < 8; ++rank)
    if (mask >> rank & 1)
      targets[count++] = {static_cast<unsigned char*>(host::cluster_address(to, rank, place)),
                          static_cast<CopyBarrier*>(host::cluster_address(barrier, rank, place))};
  unsigned char box[256 * 128];
  const unsigned bytes = static_cast<unsigned>(view.box_rows) * 128;
  std::memset(box, 0, bytes);
  for (int r = 0; r < view.box_rows && row + r < view.rows; ++r)
    for (int c = 0; c < 64 && column + c < view.columns; ++c)
      std::memcpy(
          box + r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2,
          static_cast<const unsigned char*>(view.base) + 2 * ((row + r) * view.pitch + column + c),
          2);
  for (int i = 0; i < count; ++i)
    host::copy_bulk(targets[i].to, box, bytes, targets[i].barrier, place);
}

// The box at a row and a panel, of a map with several panels.
inline void copy_panels(unsigned char* to, const TensorMap* map, int panel, int row,
                        CopyBarrier* barrier, host::Place place = host::Place::current()) {
  MatrixView view;
  std::memcpy(&view, map->bytes, sizeof view);
  check_box(to, view, place);
  if (view.box_panels < 2 || view.box_rows % 8 != 0 || view.columns % 64 != 0)
    host::fail("a map without whole panels", place);
  unsigned char box[256 * 128];
  const unsigned bytes = static_cast<unsigned>(view.box_rows) * 128;
  for (int i = 0; i < view.box_panels; ++i) {
    std::memset(box, 0, bytes);
    if (panel + i < view.columns / 64)
      for (int r = 0; r < view.box_rows && row + r < view.rows; ++r)
        for (int c = 0; c < 8; ++c)
          std::memcpy(box + r * 128 + (c ^ (r % 8)) * 16,
                      static_cast<const unsigned char*>(view.base) +
                          2 * ((row + r) * view.pitch + (panel + i) * 64 + c * 8),
                      16);
    host::copy_bulk(to + i * bytes, box, bytes, barrier, place);
  }
}

#else

AC_DEVICE void prefetch_map(const TensorMap* map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
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
// The box at a row and a panel, of a map with several panels.
AC_DEVICE void copy_panels(unsigned char* to, const TensorMap* map, int panel, int row,
                           CopyBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(0), "r"(row), "r"(panel), "r"(shared_address(barrier)),
      "l"(evict_first_policy())
      : "memory");
#endif
}

#endif

}  // namespace ac::kernels
