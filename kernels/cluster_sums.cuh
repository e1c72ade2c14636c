// The sums of one tile, of which every block of a cluster has a part: each sends to each block that
// writes what that one is to write, and those add and write. A thread holds the same rows and
// columns in every block, hence talks to its like alone.
#pragma once

#include "kernels/cluster.cuh"

namespace ac::kernels {

// Blocks with parts of the same tile are `apart` ranks from each other. A thread holds `count`
// fragments (8 columns of a warp's 16 rows) of each of `sets` row sets; of each set, the first
// blocks write `share` each. `threads` take part.
template <int parts, int apart, int sets, int count, int share, int threads>
struct ClusterSums {
  static constexpr int writers = count / share, sent = sets * share;  // fragments to one block
  static constexpr int bytes = sent * threads * 16;                   // to one block
  static_assert(writers <= parts && writers * share == count);
  using Fragment = float[4];

  unsigned char* const received;  // [parts][sent][threads] fragments: a warp's are in a row
  CopyBarrier* const landed;      // they have
  CopyBarrier* const ready;       // nobody reads anything else there any more, in any block
  const int part, first_rank;

  // By one thread, before the cluster meets.
  AC_DEVICE void init() const {
    if constexpr (parts == 1) return;
    barrier_init(landed, 1);
    barrier_init(ready, parts * threads / 32);  // one arrival a warp
  }

  AC_DEVICE bool writes() const { return part < writers; }

  // Once a launch, when this warp has read what its block copied: makes `total` of what this block
  // writes of all parts' sums, added in the order of K.
  AC_DEVICE void add_up(const Fragment (&sums)[sets * count], Fragment (&total)[sent]) const {
    if constexpr (parts == 1) {
      AC_UNROLL
      for (int i = 0; i < sent; ++i) copy(total[i], vector(sums[i]));
      return;
    }
    if (threadIdx.x == 0 && writes()) barrier_expect(landed, (parts - 1) * bytes);
    __syncwarp();
    const int lane = threadIdx.x % 32;
    if (lane < parts) barrier_arrive(ready, rank_of(lane));
    barrier_wait_for_cluster(ready, 0);
    AC_UNROLL
    for (int to = 0; to < writers; ++to) {
      if (to == part) continue;
      const ClusterAddress there = cluster_address(place(part), rank_of(to)),
                           message = cluster_address(landed, rank_of(to));
      AC_UNROLL
      for (int i = 0; i < sent; ++i)
        store_async16(there + i * threads * 16, vector(sums[of(to, i)]), message);
    }
    if (!writes()) return;
    AC_UNROLL
    for (int i = 0; i < sent; ++i) {
      AC_UNROLL
      for (int to = 0; to < writers; ++to)
        if (to == part) copy(total[i], vector(sums[of(to, i)]));
    }
    barrier_wait_for_cluster(landed, 0);
    AC_UNROLL
    for (int i = 0; i < sent; ++i) {
      float4 sum = {};
      AC_UNROLL
      for (int from = 0; from < parts; ++from) {
        float4 next = vector(total[i]);
        if (from != part) next = *reinterpret_cast<const float4*>(place(from) + i * threads * 16);
        sum = from == 0 ? next : add(sum, next);
      }
      copy(total[i], sum);
    }
  }

 private:
  AC_DEVICE int rank_of(int of_part) const { return first_rank + of_part * apart; }
  // Where any block has what this thread of block `from` sends it; its own place stays empty.
  AC_DEVICE unsigned char* place(int from) const {
    return received + from * bytes + threadIdx.x * 16;
  }
  // A fragment that block `block` writes, of all of a tile.
  AC_DEVICE static constexpr int of(int block, int i) {
    return i / share * count + block * share + i % share;
  }
  AC_DEVICE static float4 vector(const Fragment& v) { return make_float4(v[0], v[1], v[2], v[3]); }
  AC_DEVICE static float4 add(const float4& a, const float4& b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
  AC_DEVICE static void copy(Fragment& to, const float4& v) {
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
};

}  // namespace ac::kernels
