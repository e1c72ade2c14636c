// The sums of one tile, of which every block of a cluster has a part: each sends to each other
// block what that one is to write, so that all of them add and write. A thread holds the same rows
// and columns in every block, hence talks to its like alone.
#pragma once

#include "kernels/cluster.cuh"

namespace ac::kernels {

// Blocks with parts of the same tile are `apart` ranks from each other. A thread holds `count`
// fragments (8 columns of a warp's 16 rows) of each of `sets` row sets; of each set, every block
// writes its share. `threads` take part.
template <int parts, int apart, int sets, int count, int threads>
struct ClusterSums {
  static constexpr int share = count / parts;  // fragments that a block writes of each set
  static constexpr int sent = sets * share;    // to one block
  static constexpr int bytes = (parts - 1) * sent * threads * 16;
  using Fragment = float[4];

  unsigned char* const received;  // [parts - 1][sent][threads] fragments: a warp's are in a row
  CopyBarrier* const landed;      // they have
  CopyBarrier* const read;        // the others have read what this block sent
  const int part, first_rank;

  // By one thread, before the cluster meets.
  AC_DEVICE void init() const {
    if constexpr (parts == 1) return;
    barrier_init(landed, 1);
    barrier_init(read, (parts - 1) * threads / 32);  // one arrival a warp
  }

  // Takes the `turn`-th tile's sums and makes `total` of this block's share of them, added in the
  // order of K. There are `more` turns, or nobody is told that this one's were read: a block that
  // has ended is not to be reached.
  AC_DEVICE void add_up(const Fragment (&sums)[sets * count], Fragment (&total)[sent], int turn,
                        bool more) const {
    if constexpr (parts == 1) {
      AC_UNROLL
      for (int i = 0; i < sent; ++i) copy(total[i], vector(sums[i]));
      return;
    }
    if (threadIdx.x == 0) barrier_expect(landed, bytes);
    if (turn > 0) barrier_wait(read, (turn - 1) & 1);
    AC_UNROLL
    for (int to = 0; to < parts; ++to) {
      if (to == part) continue;
      const ClusterAddress there = cluster_address(place(part, to), rank_of(to)),
                           message = cluster_address(landed, rank_of(to));
      AC_UNROLL
      for (int i = 0; i < sent; ++i)
        store_async16(there + i * threads * 16, vector(sums[of(to, i)]), message);
    }
    AC_UNROLL
    for (int i = 0; i < sent; ++i) {
      AC_UNROLL
      for (int to = 0; to < parts; ++to)
        if (to == part) copy(total[i], vector(sums[of(to, i)]));
    }
    barrier_wait_for_cluster(landed, turn & 1);
    AC_UNROLL
    for (int i = 0; i < sent; ++i) {
      float4 sum = {};
      AC_UNROLL
      for (int from = 0; from < parts; ++from) {
        float4 next = vector(total[i]);
        if (from != part)
          next = *reinterpret_cast<const float4*>(place(from, part) + i * threads * 16);
        sum = from == 0 ? next : add(sum, next);
      }
      copy(total[i], sum);
    }
    if (!more) return;
    __syncwarp();
    const int lane = threadIdx.x % 32;
    if (lane < parts && lane != part) barrier_arrive(read, rank_of(lane));
  }

 private:
  AC_DEVICE int rank_of(int of_part) const { return first_rank + of_part * apart; }
  // Where block `at` has what this thread of block `from` sends it.
  AC_DEVICE unsigned char* place(int from, int at) const {
    const int slot = from < at ? from : from - 1;
    return received + (slot * sent * threads + threadIdx.x) * 16;
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
