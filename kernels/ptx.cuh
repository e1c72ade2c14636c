// PTX (here, and of wgmma in warpgroup.cuh). Every instruction that CUDA C++ lacks is a small
// function; on the host device (AC_HOST_DEVICE) each has a portable meaning that is at least as
// strict: an asynchronous copy lands no earlier than its wait, and its target reads as NaN until
// then.
#pragma once

#include "kernels/types.cuh"

namespace ac::kernels {

constexpr unsigned full_warp = 0xffffffffu;

#ifdef AC_HOST_DEVICE

// ---- programmatic dependent launch
inline void launch_dependents() {}
inline void wait_for_dependency() { host::mark_dependency_wait(); }

// ---- loads
template <class T>
T load_as(const void* p) {
  return *static_cast<const T*>(p);
}
// A weight, or zeros when !valid. Keeps its place in program order on the GPU.
template <Cache>
void load_weights(uint4& v, const void* p, bool valid) {
  v = valid ? load_as<uint4>(p) : uint4{};
}
// Data that another kernel wrote: through L2, never a stale L1 line.
template <class T>
T load_fresh(const T* p) {
  return *p;
}
// Data that no kernel writes, read many times: through L1.
template <class T>
T load_constant(const T* p) {
  return *p;
}
// What load_constant() will want, 32 bytes of it. Nobody waits for it.
inline void bring_to_l1(const void* p) { load_as<unsigned>(p); }
// Part of the KV cache: through L2, in program order.
inline uint4 load_cached(const void* p) { return load_as<uint4>(p); }
// A value that an earlier kernel may be about to change.
inline int load_relaxed(const int* p) { return *p - host::relaxed_lag(); }
// Counts a block that is done; true in the last one, which then sees what the others wrote before.
// Ends at 0 again.
inline bool count_block(unsigned* count, unsigned blocks) {
  __threadfence();
  const bool is_last = atomicInc(count, blocks - 1) == blocks - 1;
  __threadfence();
  return is_last;
}
inline uint4 load_pinned(const void* shared) { return load_as<uint4>(shared); }

// ---- asynchronous copies
inline void copy_async16(void* shared, const void* global, bool valid = true,
                         host::Place place = host::Place::current()) {
  host::copy_async(shared, global, 16, valid, place);
}
template <int bytes>
void copy_async(void* shared, const void* global, bool valid,
                host::Place place = host::Place::current()) {
  host::copy_async(shared, global, bytes, valid, place);
}
template <Cache>
void copy_weights_async(void* shared, const void* global, bool valid,
                        host::Place place = host::Place::current()) {
  host::copy_async(shared, global, 16, valid, place);
}
inline void commit_copies() { host::commit_copies(); }
template <int groups_left>
void wait_for_copies() {
  host::wait_for_copies(groups_left);
}

// ---- bulk copies that complete on a barrier in shared memory
using CopyBarrier = unsigned long long;
inline void barrier_init(CopyBarrier* barrier, int arrivals = 1) {
  host::barrier_init(barrier, static_cast<unsigned>(arrivals));
}
inline void barrier_init_visible() {}
inline void barrier_expect(CopyBarrier* barrier, unsigned bytes,
                           host::Place place = host::Place::current()) {
  host::barrier_expect(barrier, bytes, place);
}
inline void barrier_arrive(CopyBarrier* barrier, host::Place place = host::Place::current()) {
  host::barrier_arrive(barrier, place);
}
inline void barrier_wait(CopyBarrier* barrier, unsigned parity,
                         host::Place place = host::Place::current()) {
  host::barrier_wait(barrier, parity, place);
}
template <Cache = Cache::evict_first>
void copy_bulk(void* shared, const void* global, unsigned bytes, CopyBarrier* barrier,
               host::Place place = host::Place::current()) {
  host::copy_bulk(shared, global, bytes, barrier, place);
}

// ---- four 8x8 matrices of 16-bit elements from shared memory, one warp
// Lane i points to row i % 8 of matrix i / 8 (16 bytes). Of each matrix, a lane gets elements
// lane % 4 * 2 and the next of row lane / 4: an mma's fragment; of its transpose if transposed.
template <bool transposed = false>
void load_matrices(unsigned (&out)[4], const void* shared_row,
                   host::Place place = host::Place::current()) {
  if (reinterpret_cast<std::uintptr_t>(shared_row) % 16 != 0)
    host::fail("a matrix row in shared memory is not 16-byte aligned", place);
  struct Rows {
    unsigned short row[8];
    unsigned out[4];
  } mine;
  std::memcpy(mine.row, shared_row, 16);
  host::warp_collective(
      "load_matrices", full_warp, &mine,
      [](void* const payloads[32], host::Place) {
        for (int lane = 0; lane < 32; ++lane)
          for (int matrix = 0; matrix < 4; ++matrix) {
            unsigned word = 0;
            for (int i = 0; i < 2; ++i) {
              const int row = transposed ? lane % 4 * 2 + i : lane / 4;
              const int column = transposed ? lane / 4 : lane % 4 * 2 + i;
              const auto* source = static_cast<Rows*>(payloads[matrix * 8 + row]);
              word |= static_cast<unsigned>(source->row[column]) << 16 * i;
            }
            static_cast<Rows*>(payloads[lane])->out[matrix] = word;
          }
      },
      place);
  for (int i = 0; i < 4; ++i) out[i] = mine.out[i];
}

// x; what is computed from it is computed where it stands, not ahead of a loop (saves registers).
inline int in_place(int x) { return x; }
template <class T>
T* in_place(T* p) {
  return p;
}

// 2 to the power of x; subnormal results may be 0.
inline float exp2_fast(float x) { return exp2f(x); }
inline float divide_fast(float a, float b) { return a / b; }
// Not a number, if one of them is none.
inline float max_or_nan(float a, float b) { return a != a || a > b ? a : b; }
inline float2 cos_sin_fast(float x) { return {cosf(x), sinf(x)}; }

// (a & mask) | b, which is one instruction.
template <unsigned b>
unsigned masked_or(unsigned a, unsigned mask) {
  return (a & mask) | b;
}
// a * b + c of both elements of words.
template <class T>
unsigned fma_pairs(unsigned a, unsigned b, unsigned c) {
  const float2 x = unpack_pair<T>(a), y = unpack_pair<T>(b), z = unpack_pair<T>(c);
  return pack_pair<T>(fmaf(x.x, y.x, z.x), fmaf(x.y, y.y, z.y));
}

// ---- matrix multiply-accumulate: c[16,8] += a[16,16] * b[16,8], one warp
// A word of a fragment has `each` neighbours of a row or column, element(word, i) of which is one.
template <int each, class Sum, class ElementOf>
void mma_of_words(Sum (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], ElementOf,
                  host::Place place) {
  struct Fragment {
    Sum c[4];
    unsigned a[4], b[2];
  } mine;
  for (int i = 0; i < 4; ++i) mine.c[i] = c[i], mine.a[i] = a[i];
  mine.b[0] = b[0], mine.b[1] = b[1];
  host::warp_collective(
      "mma", full_warp, &mine,
      [](void* const payloads[32], host::Place) {
        constexpr int half = 4 * each, depth = 2 * half;
        const ElementOf element;
        Sum left[16][depth], right[depth][8];
        for (int k = 0; k < depth; ++k) {
          for (int row = 0; row < 16; ++row) {
            const auto* f = static_cast<Fragment*>(payloads[row % 8 * 4 + k % half / each]);
            left[row][k] = element(f->a[row / 8 + 2 * (k / half)], k % each);
          }
          for (int column = 0; column < 8; ++column) {
            const auto* f = static_cast<Fragment*>(payloads[column * 4 + k % half / each]);
            right[k][column] = element(f->b[k / half], k % each);
          }
        }
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < 4; ++i) {
            Sum& sum = static_cast<Fragment*>(payloads[lane])->c[i];
            for (int k = 0; k < depth; ++k)
              sum += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
          }
      },
      place);
  for (int i = 0; i < 4; ++i) c[i] = mine.c[i];
}
template <class T>
void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                 host::Place place = host::Place::current()) {
  const auto element = [](unsigned word, int i) {
    const float2 pair = unpack_pair<T>(word);
    return i == 1 ? pair.y : pair.x;
  };
  mma_of_words<2>(c, a, b, element, place);
}
// Of signed bytes: c[16,8] += a[16,32] * b[32,8].
inline void mma_16x8x32(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                        host::Place place = host::Place::current()) {
  const auto element = [](unsigned word, int i) {
    return static_cast<int>(static_cast<signed char>(word >> 8 * i & 255));
  };
  mma_of_words<4>(c, a, b, element, place);
}

#else

// ---- programmatic dependent launch
AC_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
AC_DEVICE void wait_for_dependency() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- loads
AC_DEVICE unsigned long long evict_first_policy() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// A weight, or zeros when !valid. Volatile: the compiler must not sink it below a wait.
template <Cache cache>
AC_DEVICE void load_weights(uint4& v, const void* p, bool valid) {
  v = make_uint4(0, 0, 0, 0);
  if constexpr (cache == Cache::streaming) {
    asm volatile(
        "{ .reg .pred q; setp.ne.b32 q, %5, 0;\n\t"
        "@q ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(p), "r"(static_cast<int>(valid)));
  } else if constexpr (cache == Cache::no_allocate) {
    asm volatile(
        "{ .reg .pred q; setp.ne.b32 q, %5, 0;\n\t"
        "@q ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(p), "r"(static_cast<int>(valid)));
  } else {
    asm volatile(
        "{ .reg .pred q; setp.ne.b32 q, %5, 0;\n\t"
        "@q ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %6; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(p), "r"(static_cast<int>(valid)), "l"(evict_first_policy()));
  }
}
// Data that another kernel wrote: through L2, never a stale L1 line.
template <class T>
AC_DEVICE T load_fresh(const T* p) {
  return __ldcg(p);
}
template <>
AC_DEVICE f16 load_fresh<f16>(const f16* p) {
  return {__ldcg(reinterpret_cast<const unsigned short*>(p))};
}
template <>
AC_DEVICE bf16 load_fresh<bf16>(const bf16* p) {
  return {__ldcg(reinterpret_cast<const unsigned short*>(p))};
}
template <>
AC_DEVICE e4m3 load_fresh<e4m3>(const e4m3* p) {
  return {__ldcg(reinterpret_cast<const unsigned char*>(p))};
}
template <>
AC_DEVICE e8m0 load_fresh<e8m0>(const e8m0* p) {
  return {__ldcg(reinterpret_cast<const unsigned char*>(p))};
}
// Data that no kernel writes, read many times: through L1.
template <class T>
AC_DEVICE T load_constant(const T* p) {
  return __ldg(p);
}
template <>
AC_DEVICE f16 load_constant<f16>(const f16* p) {
  return {__ldg(reinterpret_cast<const unsigned short*>(p))};
}
template <>
AC_DEVICE bf16 load_constant<bf16>(const bf16* p) {
  return {__ldg(reinterpret_cast<const unsigned short*>(p))};
}
template <>
AC_DEVICE e4m3 load_constant<e4m3>(const e4m3* p) {
  return {__ldg(reinterpret_cast<const unsigned char*>(p))};
}
template <>
AC_DEVICE e8m0 load_constant<e8m0>(const e8m0* p) {
  return {__ldg(reinterpret_cast<const unsigned char*>(p))};
}
// What load_constant() will want, 32 bytes of it. Nobody waits for it.
AC_DEVICE void bring_to_l1(const void* p) {
  [[maybe_unused]] unsigned unused;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(unused) : "l"(p));
}
// Part of the KV cache: through L2, in program order.
AC_DEVICE uint4 load_cached(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
// A value that an earlier kernel may be about to change.
AC_DEVICE int load_relaxed(const int* p) {
  int v;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// Counts a block that is done; true in the last one, which then sees what the others wrote before.
// Ends at 0 again. One thread calls it between two barriers: cheaper than a fence by every thread.
AC_DEVICE bool count_block(unsigned* count, unsigned blocks) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(count), "r"(blocks - 1)
               : "memory");
  return before == blocks - 1;
}
// A shared-memory load that the compiler does not hoist out of a loop (saves registers).
AC_DEVICE unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
AC_DEVICE uint4 load_pinned(const void* shared) {
  uint4 v;
  asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared_address(shared)));
  return v;
}

// ---- asynchronous copies
template <int bytes>  // 4, 8 or 16
AC_DEVICE void copy_async(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
               "l"(global), "n"(bytes), "r"(valid ? bytes : 0)
               : "memory");
}
AC_DEVICE void copy_async16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
template <Cache cache>
AC_DEVICE void copy_weights_async(void* shared, const void* global, bool valid) {
  if constexpr (cache == Cache::evict_first) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(valid ? 16 : 0), "l"(evict_first_policy())
                 : "memory");
  } else if constexpr (cache == Cache::no_allocate) {
    asm volatile(
        "cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
        "l"(global), "r"(valid ? 16 : 0)
        : "memory");
  } else {
    copy_async16(shared, global, valid);
  }
}
AC_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups_left>
AC_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

// ---- bulk copies that complete on a barrier in shared memory (sm_90 and later)
using CopyBarrier = unsigned long long;
AC_DEVICE void barrier_init(CopyBarrier* barrier, int arrivals = 1) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
// Makes initialised barriers visible to the copy engine.
AC_DEVICE void barrier_init_visible() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
AC_DEVICE void barrier_expect(CopyBarrier* barrier, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}
AC_DEVICE void barrier_arrive(CopyBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}
AC_DEVICE void barrier_wait(CopyBarrier* barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n\t"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
      "@!done bra again; }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}
template <Cache cache = Cache::evict_first>
AC_DEVICE void copy_bulk(void* shared, const void* global, unsigned bytes, CopyBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  if constexpr (cache == Cache::evict_first)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(evict_first_policy())
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
#endif
}

// ---- four 8x8 matrices of 16-bit elements from shared memory, one warp
// Lane i points to row i % 8 of matrix i / 8 (16 bytes). Of each matrix, a lane gets elements
// lane % 4 * 2 and the next of row lane / 4: an mma's fragment; of its transpose if transposed.
template <bool transposed = false>
AC_DEVICE void load_matrices(unsigned (&out)[4], const void* shared_row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}

// x; what is computed from it is computed where it stands, not ahead of a loop (saves registers).
AC_DEVICE int in_place(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
template <class T>
AC_DEVICE T* in_place(T* p) {
  asm volatile("" : "+l"(p));
  return p;
}

// 2 to the power of x; subnormal results may be 0.
AC_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// a / b to two units in the last place; 0 for a |b| of 2^126 and more.
AC_DEVICE float divide_fast(float a, float b) { return __fdividef(a, b); }
// Not a number, if one of them is none.
AC_DEVICE float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
// To 5e-7 from -pi to pi.
AC_DEVICE float2 cos_sin_fast(float x) { return make_float2(__cosf(x), __sinf(x)); }

// (a & mask) | b in one instruction.
template <unsigned b>
AC_DEVICE unsigned masked_or(unsigned a, unsigned mask) {
  unsigned out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(mask), "n"(b));
  return out;
}
// a * b + c of both elements of words.
template <class T>
AC_DEVICE unsigned fma_pairs(unsigned a, unsigned b, unsigned c);
template <>
AC_DEVICE unsigned fma_pairs<f16>(unsigned a, unsigned b, unsigned c) {
  unsigned out;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}
template <>
AC_DEVICE unsigned fma_pairs<bf16>(unsigned a, unsigned b, unsigned c) {
  unsigned out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}

// ---- matrix multiply-accumulate: c[16,8] += a[16,16] * b[16,8], one warp
template <class T>
AC_DEVICE void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
AC_DEVICE void mma_16x8x16<f16>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
AC_DEVICE void mma_16x8x16<bf16>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
AC_DEVICE void mma_16x8x32(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

// The largest of a warp's values.
AC_DEVICE unsigned largest_of_warp(unsigned x) {
#if !defined(AC_HOST_DEVICE) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(full_warp, x);
#else
  AC_UNROLL
  for (int d = 16; d > 0; d /= 2) {
    const unsigned other = __shfl_xor_sync(full_warp, x, d);
    x = other > x ? other : x;
  }
  return x;
#endif
}

// Sums and products of both elements of two words. GPUs before sm_90 have no others of bf16.
template <class T>
AC_DEVICE unsigned add_pairs(unsigned a, unsigned b) {
  return fma_pairs<T>(a, from_float<T>(1).bits * 0x10001u, b);
}
template <class T>
AC_DEVICE unsigned multiply_pairs(unsigned a, unsigned b) {
  return fma_pairs<T>(a, b, 0x80008000u);  // - 0, which keeps the sign of 0
}

// x, which is the same in all lanes, so that the compiler knows (and branches on it stay simple).
AC_DEVICE int same_in_warp(int x) { return __shfl_sync(full_warp, x, 0); }

// A value of each lane of the warp.
template <class T>
class OfLanes {
 public:
#ifdef AC_HOST_DEVICE
  explicit OfLanes(T own) { host::gather_lanes(own, values_); }
  T operator[](int lane) const { return values_[lane]; }

 private:
  T values_[32];
#else
  AC_DEVICE explicit OfLanes(T own) : own_(own) {}
  AC_DEVICE T operator[](int lane) const { return __shfl_sync(full_warp, own_, lane); }

 private:
  T own_;
#endif
};

// Combines the values of all lanes, in the same order in every kernel: first those of lanes 16
// apart, last those of neighbours.
template <class T, class Combine>
AC_DEVICE T warp_reduce(T v, Combine combine) {
#ifdef AC_HOST_DEVICE
  return host::reduce_lanes(v, combine);
#else
  AC_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) v = combine(v, __shfl_xor_sync(full_warp, v, lanes));
  return v;
#endif
}
AC_DEVICE float warp_sum(float v) {
  return warp_reduce(v, [](float a, float b) { return a + b; });
}
// The sums of several values at once.
template <int rows, int columns>
AC_DEVICE void warp_sum(float (&v)[rows][columns]) {
#ifdef AC_HOST_DEVICE
  struct All {
    float v[rows][columns];
  } all;
  std::memcpy(all.v, v, sizeof v);
  all = warp_reduce(all, [](All a, const All& b) {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) a.v[r][c] += b.v[r][c];
    return a;
  });
  std::memcpy(v, all.v, sizeof v);
#else
  AC_UNROLL
  for (auto& row : v) {
    AC_UNROLL
    for (float& x : row) x = warp_sum(x);
  }
#endif
}
AC_DEVICE float warp_max(float v) {
  return warp_reduce(v, [](float a, float b) { return fmaxf(a, b); });
}
AC_DEVICE unsigned long long warp_max(unsigned long long v) {
  return warp_reduce(v, [](unsigned long long a, unsigned long long b) { return b > a ? b : a; });
}

}  // namespace ac::kernels
