// CUDA's device language for the host compiler, so that a kernel's own source also runs on the CPU:
// the qualifiers, thread indices, barriers, shuffles, votes and atomics. Blocks (of a
// cluster, all together) run one after another and their threads are fibers (see host_launch.h); a
// barrier is a switch between them. Everything lives in the kernels' own namespace, so a program
// may use this next to anything else.
//
// Every kernel that is built for the host device reads this first, hence the few headers: of its
// compilation, <cmath> and <functional> took two thirds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

// As <cmath> has them.
#ifndef INFINITY
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#endif

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

// Says of a kernel that is built apart that it runs on no CPU without FMA.
#ifdef __FMA__
extern "C" __attribute__((visibility("default"), used)) inline const bool ac_uses_fma = true;
#endif

namespace ac::kernels {

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace host {

using Place = std::source_location;

// Ends the launch with an error that names the kernel, block, thread and place.
[[noreturn]] void fail(const char* what, Place place);

// Waits until every lane of `mask` came to the same operation at the same place. The last one runs
// `combine` over the lanes' payloads (null outside the mask) before anyone goes on.
void warp_collective(const char* operation, unsigned mask, void* payload,
                     void (*combine)(void* const payloads[32], Place place), Place place);

// Waits until `ready(state)`; if nothing else can run and it still is not, that is a deadlock.
void wait_until(const char* operation, bool (*ready)(void* state), void* state, Place place);

unsigned linear_thread();

// The first `count` threads of the block wait for each other.
void meet_first(unsigned count, Place place);
// All threads of all blocks of the cluster; a GPU would not wait for those that have ended.
void meet_cluster(Place place);
// The same place of shared memory in block `rank` of the cluster, which has started and not ended.
void* cluster_address(const void* shared, unsigned rank, Place place);

void* dynamic_shared_memory();
// One allocation of exactly `bytes` for each key and block, so that AddressSanitizer sees overruns.
void* static_shared_memory(const void* key, std::size_t bytes);

void copy_async(void* shared, const void* global, unsigned bytes, bool valid, Place place);
void commit_copies();
void wait_for_copies(unsigned groups_left);
void copy_bulk(void* shared, const void* global, unsigned bytes, void* barrier, Place place);
void barrier_init(void* barrier, unsigned arrivals);
void barrier_expect(void* barrier, unsigned bytes, Place place);
void barrier_arrive(void* barrier, Place place);
void barrier_wait(void* barrier, unsigned parity, Place place);

// What a thread asked for and the hardware does later: here at the wait, and no earlier.
void defer(void (*run)(const void* operation), const void* operation, std::size_t bytes);
template <class Operation>
void defer(const Operation& operation) {
  static_assert(__is_trivially_copyable(Operation));  // its bytes are kept
  static_assert(alignof(Operation) <= alignof(std::max_align_t));
  defer([](const void* kept) { (*static_cast<const Operation*>(kept))(); }, &operation,
        sizeof operation);
}
void commit_deferred();
// Of a whole warp: no lane goes on before all of them have done theirs.
void wait_for_deferred(unsigned groups_left, Place place);

void mark_dependency_wait();
// For the race checker. By atomicInc() blocks count themselves.
void note_fence();
void note_publication();
void note_atomic(const void* address, std::size_t bytes);
void note_count(const void* counter);
// A word whose tag says what it is: whoever has waited for it knows what its writer knew. It is an
// error if a word is stored that was read with this tag before.
void note_word_stored(const void* word, unsigned tag, Place place);
void note_word_seen(const void* word, unsigned tag);
// How far a relaxed load of a counter lags behind (HostLaunch::relaxed_lag).
int relaxed_lag();

template <class T>
struct Shuffle {
  T value;
  unsigned source;
};

template <class T>
T shuffle(const char* operation, unsigned mask, T value, unsigned source, Place place) {
  static_assert(sizeof(T) <= 8);
  Shuffle<T> mine{value, source};
  warp_collective(
      operation, mask, &mine,
      [](void* const payloads[32], Place where) {
        T values[32] = {};
        for (unsigned lane = 0; lane < 32; ++lane)
          if (payloads[lane]) values[lane] = static_cast<Shuffle<T>*>(payloads[lane])->value;
        for (unsigned lane = 0; lane < 32; ++lane) {
          auto* shuffle = static_cast<Shuffle<T>*>(payloads[lane]);
          if (!shuffle) continue;
          if (!payloads[shuffle->source]) fail("a shuffle reads a lane outside its mask", where);
          shuffle->value = values[shuffle->source];
        }
      },
      place);
  return mine.value;
}

// Gives each lane the values of all. Lanes are switched once, where 32 shuffles would do it 32
// times: that is what shuffles cost here.
template <class T>
void gather_lanes(T own, T (&values)[32], Place place = Place::current()) {
  struct Lane {
    T own;
    T* values;
  } mine{own, values};
  warp_collective(
      "shuffle", ~0u, &mine,
      [](void* const payloads[32], Place) {
        T all[32];
        for (unsigned lane = 0; lane < 32; ++lane)
          all[lane] = static_cast<Lane*>(payloads[lane])->own;
        for (unsigned lane = 0; lane < 32; ++lane)
          std::memcpy(static_cast<Lane*>(payloads[lane])->values, all, sizeof all);
      },
      place);
}

// A butterfly of five shuffles, likewise: each lane combines its value with that of the lane 16, 8,
// 4, 2 and 1 away.
template <class T, class Combine>
T reduce_lanes(T own, Combine combine, Place place = Place::current()) {
  struct Lane {
    T value;
    Combine combine;
  } mine{own, combine};
  warp_collective(
      "shuffle", ~0u, &mine,
      [](void* const payloads[32], Place) {
        for (unsigned away = 16; away > 0; away /= 2) {
          T values[32];
          for (unsigned lane = 0; lane < 32; ++lane)
            values[lane] = static_cast<Lane*>(payloads[lane])->value;
          for (unsigned lane = 0; lane < 32; ++lane) {
            auto* const own_lane = static_cast<Lane*>(payloads[lane]);
            own_lane->value = own_lane->combine(values[lane], values[lane ^ away]);
          }
        }
      },
      place);
  return mine.value;
}

inline unsigned ballot(unsigned mask, bool vote, Place place) {
  unsigned mine = vote;
  warp_collective(
      "vote", mask, &mine,
      [](void* const payloads[32], Place) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < 32; ++lane)
          if (payloads[lane] && *static_cast<unsigned*>(payloads[lane])) votes |= 1u << lane;
        for (unsigned lane = 0; lane < 32; ++lane)
          if (payloads[lane]) *static_cast<unsigned*>(payloads[lane]) = votes;
      },
      place);
  return mine;
}

}  // namespace host

void __syncthreads(host::Place place = host::Place::current());
void __syncwarp(unsigned mask = ~0u, host::Place place = host::Place::current());

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int = 32,
              host::Place place = host::Place::current()) {
  return host::shuffle("shuffle", mask, value, static_cast<unsigned>(source) % 32, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int = 32,
                  host::Place place = host::Place::current()) {
  const unsigned lane = host::linear_thread() % 32;
  return host::shuffle("shuffle", mask, value, (lane ^ static_cast<unsigned>(lane_mask)) % 32,
                       place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int = 32,
                   host::Place place = host::Place::current()) {
  const unsigned lane = host::linear_thread() % 32;
  return host::shuffle("shuffle", mask, value, lane + delta < 32 ? lane + delta : lane, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int = 32,
                 host::Place place = host::Place::current()) {
  const unsigned lane = host::linear_thread() % 32;
  return host::shuffle("shuffle", mask, value, lane >= delta ? lane - delta : lane, place);
}
inline unsigned __ballot_sync(unsigned mask, int vote, host::Place place = host::Place::current()) {
  return host::ballot(mask, vote != 0, place);
}
inline int __any_sync(unsigned mask, int vote, host::Place place = host::Place::current()) {
  return host::ballot(mask, vote != 0, place) != 0;
}
inline int __all_sync(unsigned mask, int vote, host::Place place = host::Place::current()) {
  return host::ballot(mask, vote != 0, place) == mask;
}

// All blocks run on one thread of the operating system, so that plain code is atomic. Kept out
// of the race checker's sight, as two atomics never race.
template <class T>
__attribute__((no_sanitize("thread"))) T atomicAdd(T* address, T value) {
  host::note_atomic(address, sizeof(T));
  const T old = *address;
  *address = old + value;
  return old;
}
__attribute__((no_sanitize("thread"))) inline unsigned atomicInc(unsigned* address,
                                                                 unsigned limit) {
  host::note_count(address);
  const unsigned old = *address;
  *address = old >= limit ? 0 : old + 1;
  return old;
}
template <class T>
__attribute__((no_sanitize("thread"))) T atomicMax(T* address, T value) {
  host::note_atomic(address, sizeof(T));
  const T old = *address;
  if (value > old) *address = value;
  return old;
}
template <class T>
__attribute__((no_sanitize("thread"))) T atomicExch(T* address, T value) {
  host::note_atomic(address, sizeof(T));
  const T old = *address;
  *address = value;
  return old;
}
template <class T>
__attribute__((no_sanitize("thread"))) T atomicCAS(T* address, T expected, T value) {
  host::note_atomic(address, sizeof(T));
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}
inline void __threadfence() { host::note_fence(); }
inline void __threadfence_block() {}

inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float __expf(float x) { return __builtin_expf(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float exp2f(float x) { return __builtin_exp2f(x); }
inline float expf(float x) { return __builtin_expf(x); }
inline float floorf(float x) { return __builtin_floorf(x); }
inline float logf(float x) { return __builtin_logf(x); }
inline float log1pf(float x) { return __builtin_log1pf(x); }
inline float erff(float x) { return __builtin_erff(x); }
inline float erfcf(float x) { return __builtin_erfcf(x); }
inline float powf(float a, float b) { return __builtin_powf(a, b); }
inline float rintf(float x) { return __builtin_rintf(x); }
inline float tanhf(float x) { return __builtin_tanhf(x); }
inline float sinf(float x) { return __builtin_sinf(x); }
inline float cosf(float x) { return __builtin_cosf(x); }
inline double cos(double x) { return __builtin_cos(x); }
inline double sin(double x) { return __builtin_sin(x); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
using std::memcpy;
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
  return sum;
}

}  // namespace ac::kernels

// Shared memory. CUDA's own `__shared__` is left undefined here: these two let the host give every
// block fresh, exactly sized, poisoned memory.
#define AC_SHARED(T, name, count)                                            \
  T* const name = static_cast<T*>(::ac::kernels::host::static_shared_memory( \
      [] {                                                                   \
        static const char key = 0;                                           \
        return static_cast<const void*>(&key);                               \
      }(),                                                                   \
      sizeof(T) * (count)))
#define AC_DYNAMIC_SHARED(name) \
  auto* const name = static_cast<unsigned char*>(::ac::kernels::host::dynamic_shared_memory())
#define AC_ALIGNED_SHARED(name, bytes) AC_DYNAMIC_SHARED(name)
