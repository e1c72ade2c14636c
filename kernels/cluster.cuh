// How blocks of a cluster reach each other (sm_90): they meet, count at barriers in each other's
// shared memory, and store there. PTX, as in ptx.cuh, and what it means on the host device.
#pragma once

#include "kernels/ptx.cuh"

namespace ac::kernels {

#ifdef AC_HOST_DEVICE

using ClusterAddress = unsigned char*;
inline ClusterAddress cluster_address(const void* shared, int rank,
                                      host::Place place = host::Place::current()) {
  return static_cast<unsigned char*>(
      host::cluster_address(shared, static_cast<unsigned>(rank), place));
}
inline void barrier_arrive(CopyBarrier* barrier, int rank,
                           host::Place place = host::Place::current()) {
  host::barrier_arrive(cluster_address(barrier, rank, place), place);
}
inline void barrier_wait_for_cluster(CopyBarrier* barrier, unsigned parity,
                                     host::Place place = host::Place::current()) {
  host::barrier_wait(barrier, parity, place);
}
template <int blocks>
void meet_cluster(host::Place place = host::Place::current()) {
  if constexpr (blocks == 1)
    __syncthreads(place);
  else
    host::meet_cluster(place);
}
// What was stored arrives at a wait for the barrier and no earlier, as copies do.
inline void store_async16(ClusterAddress to, const float4& values, ClusterAddress barrier,
                          host::Place place = host::Place::current()) {
  host::copy_bulk(to, &values, sizeof values, barrier, place);
}

#else

// The same place of shared memory in the cluster's block `rank`.
using ClusterAddress = unsigned;
AC_DEVICE ClusterAddress cluster_address(const void* shared, int rank) {
  unsigned there = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(shared_address(shared)), "r"(rank));
#endif
  return there;
}
// At the same barrier of the cluster's block `rank`. No data goes with it: a release to the cluster
// would cost a fence of the whole GPU.
AC_DEVICE void barrier_arrive(CopyBarrier* barrier, int rank) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(barrier, rank))
               : "memory");
#endif
}
// For what other blocks stored here.
AC_DEVICE void barrier_wait_for_cluster(CopyBarrier* barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n\t"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again; }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
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
// To another block, whose own barrier counts the bytes when they are there: data and message are
// one, so that the sender needs no fence. As floats: to bring sums to integer registers, ptxas
// would put every product behind the last one (C7520).
AC_DEVICE void store_async16(ClusterAddress to, const float4& values, ClusterAddress barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(barrier)
      : "memory");
#endif
}

#endif

}  // namespace ac::kernels
