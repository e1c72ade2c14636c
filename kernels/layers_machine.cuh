// Instructions that the launch of all layers (kernels/layers.cuh) has for itself: fences and
// addresses of shared memory, clocks, and loads that come early.
#pragma once

#ifdef AC_HOST_DEVICE
#include <chrono>
#endif

#include "kernels/ptx.cuh"

namespace ac::kernels {

// What was read of shared memory has been, before the copy engine may write there: reads that
// nobody has used yet may still be under way.
AC_DEVICE void publish_reads() {
#if !defined(AC_HOST_DEVICE) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// The first `count` threads of the block, which are whole warps, wait for each other.
template <int count>
AC_DEVICE void meet_first() {
  static_assert(count % 32 == 0);
  __syncwarp();
#ifdef AC_HOST_DEVICE
  host::meet_first(count, host::Place::current());
#else
  asm volatile("bar.sync 1, %0;" ::"n"(count) : "memory");
#endif
}

// An address in shared memory in a register, where a pointer takes two.
#ifdef AC_HOST_DEVICE
using SharedAddress = unsigned long long;
inline SharedAddress address_in_shared(const void* p) { return reinterpret_cast<SharedAddress>(p); }
inline const void* at_shared(SharedAddress a) { return reinterpret_cast<const void*>(a); }
#else
using SharedAddress = unsigned;
AC_DEVICE SharedAddress address_in_shared(const void* p) { return shared_address(p); }
AC_DEVICE const void* at_shared(SharedAddress a) { return __cvta_shared_to_generic(a); }
#endif

// Any value, which takes no instruction.
AC_DEVICE unsigned anything() {
  unsigned any;
#ifdef AC_HOST_DEVICE
  any = 0;
#else
  asm("" : "=r"(any));
#endif
  return any;
}

// A multiprocessor's clock; the host device has none.
AC_DEVICE unsigned clock_now() {
  unsigned now = 0;
#ifndef AC_HOST_DEVICE
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now));
#endif
  return now;
}
// Waits until the clock is at `due` or later, and says where it is.
AC_DEVICE unsigned wait_for_clock([[maybe_unused]] unsigned due) {
  unsigned now = clock_now();
#ifndef AC_HOST_DEVICE
  while (static_cast<int>(now - due) < 0) now = clock_now();
#endif
  return now;
}

// The device's time.
AC_DEVICE unsigned long long nanoseconds() {
#ifdef AC_HOST_DEVICE
  using namespace std::chrono;
  return duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
#else
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

// A constant that is wanted soon: asked for here, not where it is used.
AC_DEVICE unsigned load_early(const unsigned* p) {
#ifdef AC_HOST_DEVICE
  return load_as<unsigned>(p);
#else
  unsigned v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
#endif
}
AC_DEVICE unsigned short load_early(const unsigned short* p) {
#ifdef AC_HOST_DEVICE
  return load_as<unsigned short>(p);
#else
  unsigned short v;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
#endif
}

}  // namespace ac::kernels
