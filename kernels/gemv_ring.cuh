// Where a GEMV warp's weights wait in shared memory: filled by asynchronous copies of each lane, or
// by bulk copies of the copy engine.
#pragma once

#include "kernels/gemv_plan.h"
#include "kernels/ptx.cuh"
#include "kernels/weight_reader.cuh"

namespace ac::kernels {

// A warp's ring in shared memory; `depth` slots of [rows][chunks][32 lanes] 16-byte vectors.
template <GemvOp op, GemvPlan plan>
struct SharedRing {
  using Stored = typename WeightReader<op.format, op.weight>::Stored;
  static constexpr int vector = 16 / sizeof(Stored);  // what a lane loads at once
  static constexpr int row_bytes = plan.chunks * 512;
  static constexpr int slot_bytes = plan.rows * row_bytes;
  static constexpr bool bulk = plan.ring == Ring::bulk_copy;

  unsigned char* slots;
  CopyBarrier* filled;  // [depth], bulk copies only

  AC_DEVICE SharedRing(unsigned char* shared_ring) {
    const int warp = threadIdx.x / 32;
    slots = shared_ring + warp * plan.depth * slot_bytes;
    filled = reinterpret_cast<CopyBarrier*>(shared_ring + plan.ring_bytes()) + warp * plan.depth;
    if constexpr (bulk) {
      if (threadIdx.x % 32 == 0) {
        for (int slot = 0; slot < plan.depth; ++slot) barrier_init(filled + slot);
        barrier_init_visible();
      }
      __syncwarp();
    }
  }

  // Asks for vectors [begin, begin + 32 chunks) of each row, as far as `used` goes.
  AC_DEVICE void fill(int slot, const Stored* const (&row)[plan.rows], int begin, int used,
                      bool valid) const {
    unsigned char* const target = slots + slot * slot_bytes;
    const int lane = threadIdx.x % 32;
    if constexpr (bulk) {
      if (lane == 0 && valid) {
        const int left = (used - begin) * 16;
        const int bytes = left < 0 ? 0 : left < row_bytes ? left : row_bytes;
        barrier_expect(filled + slot, plan.rows * bytes);
        if (bytes > 0) {
          AC_UNROLL
          for (int r = 0; r < plan.rows; ++r)
            copy_bulk(target + r * row_bytes, row[r] + begin * vector, bytes, filled + slot);
        }
      }
    } else {
      const int i = begin + lane;
      const bool inside = valid && i < used;
      AC_UNROLL
      for (int r = 0; r < plan.rows; ++r)
        copy_weights_async<plan.cache>(target + r * row_bytes + lane * 16,
                                       row[r] + (inside ? i * vector : 0), inside);
      commit_copies();
    }
  }

  AC_DEVICE void wait(int slot, unsigned parity) const {
    if constexpr (bulk)
      barrier_wait(filled + slot, parity);
    else
      wait_for_copies<plan.depth - 1>();
  }

  AC_DEVICE uint4 read(int slot, int r, int chunk) const {
    const int lane = threadIdx.x % 32;
    return *reinterpret_cast<const uint4*>(slots + slot * slot_bytes + r * row_bytes + chunk * 512 +
                                           lane * 16);
  }
};

}  // namespace ac::kernels
