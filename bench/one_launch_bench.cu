// One launch for all layers of a decoder's step of one token (Qwen3: grouped attention with norms
// of queries and keys), to find out what a step loses between its products, and what is left when
// it loses less.
//   - Weights and cached keys and values come through one ring of shared memory a warp, filled by
//   the copy engine
//     in the order in which they are used: memory does not wait for a product's input.
//   - Products by tensor cores: a tile is 16 rows; a block multiplies its tiles by its part of K,
//   an eighth a warp,
//     so that a warp stages only its own eighth of the input. One barrier a product, before the
//     warps' sums.
//   - Outputs are words of eight bytes: values and the number of the layer. A reader waits for the
//   words it needs.
//     Sums of K's parts are added by the reader. Every block keeps the hidden state in registers.
//   - Attention: sixteen blocks a head of keys; each then joins sixteen of the head's values.
// It was the first to show what such a launch gains. kernels/layers.cuh is made of it, for any
// sizes; that one also has a fence where a warp lets the copy engine write over what it has read.
// Prints JSON lines: microseconds a layer, share of the streaming limit, error against sums in
// double, stamps.
#include <cuda_bf16.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "bench/device_helpers.cuh"
#include "bench/gpu.cuh"

namespace ac::bench {

using Packet = unsigned long long;  // two bfloat16 or one float32, and the number of the layer

constexpr int warps = 8,
              threads = warps * 32;  // that multiply; two more ask for weights, and finish sums
constexpr int slot_k = 64, slot_bytes = 16 * slot_k * 2;
constexpr int splits = 16;  // blocks that share a head of keys

struct Args {
  const __nv_bfloat16* weights;
  __nv_bfloat16 *keys, *values;          // [layer][head][capacity][128]
  const float *q_norm, *k_norm, *turns;  // turns: cosine and sine of 64 angles
  Packet *h, *qkv, *act, *o, *down, *attention;
  Packet* partial;  // [head of keys][split]: sums of two heads, then their maxima and totals
  int context, capacity, window;  // slots under way at once, of a warp
  unsigned long long* stamps;     // [5][block][4] of one layer
  int stamped_layer, dry;
};

// Products: rows in tiles of 16, K in parts; a block has `tiles` tiles of one part.
template <int k_, int rows_, int parts_, int tiles_>
struct Product {
  static constexpr int k = k_, rows = rows_, parts = parts_, tiles = tiles_;
  static constexpr int part_k = k / parts, warp_k = part_k / warps,
                       slots = warp_k / slot_k;  // of a tile and warp
  static constexpr int units = rows / 16 / tiles * parts;
  static constexpr size_t elements = size_t(k) * rows;
};
template <class Qkv, class O, class GateUp, class Down, int layers_>
struct Model {
  template <int s>
  using Stage = std::tuple_element_t<s, std::tuple<Qkv, O, GateUp, Down>>;
  static constexpr int heads = O::k / 128, kv_heads = (Qkv::rows - O::k) / 256,
                       group = heads / kv_heads;
  static_assert(kv_heads == 8 && group == 2);
  static constexpr int hidden = Qkv::k, attention = O::k, inter = Down::k, layers = layers_;
  template <int s>
  static constexpr size_t offset() {
    if constexpr (s == 0)
      return 0;
    else
      return offset<s - 1>() + Stage<s - 1>::elements;
  }
  static constexpr size_t layer = offset<3>() + Down::elements;
};

// Where a weight lies: units one after another; in each, tiles; in each, steps of K; in each,
// warps.
template <class S>
__host__ __device__ size_t place_of(int row, int k) {
  const int tile = row / 16, part = k / S::part_k, unit = tile / S::tiles * S::parts + part;
  const int warp = k % S::part_k / S::warp_k, step = k % S::warp_k / slot_k, in = k % slot_k;
  const size_t slot =
      ((size_t(unit) * S::tiles + tile % S::tiles) * S::slots + step) * warps + warp;
  const int q = in / 32, half = row % 16 / 8, lane = row % 8 * 4 + in % 32 / 8;
  return slot * 1024 + ((q * 2 + half) * 32 + lane) * 8 + in % 8;
}

__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ inline Packet load_packet(const Packet* p) {
  Packet v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store_packet(Packet* p, Packet v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ inline unsigned long long global_time() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Rings of slots, one a warp, filled by the copy engine in the order in which the warp reads. One
// more warp asks for them: its lane i for warp i.
template <class M>
struct Ring {
  unsigned slots, full, empty;  // of this warp, or of the one this lane asks for
  int count, at = 0;
  unsigned phase = 0;
  // What the lane that asks keeps.
  int oldest = 0, under_way = 0, window;
  unsigned oldest_phase = 0;
  bool dry;

  __device__ Ring(char* shared, int slot_count, int window, bool dry)
      : count(slot_count), window(window), dry(dry) {
    const int warp = threadIdx.x / 32 == warps ? threadIdx.x % 32 : threadIdx.x / 32;
    slots = shared_address(shared) + warp * slot_count * slot_bytes;
    full = shared_address(shared) + warps * slot_count * slot_bytes + warp * slot_count * 16;
    empty = full + slot_count * 8;
  }
  // By the warp that asks.
  __device__ void set_up() {
    if (threadIdx.x % 32 < warps) {
      for (int i = 0; i < count; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + i * 8));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(empty + i * 8));
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
  }
  __device__ static void wait(unsigned barrier, unsigned parity) {
    unsigned done;
    do {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, "
          "0, p; }"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
    } while (!done);
  }
  __device__ void move() {
    if (++at == count) at = 0, phase ^= 1;
  }
  template <int s>
  __device__ void ask(const __nv_bfloat16* layer, unsigned long long policy) {
    using S = typename M::template Stage<s>;
    if (int(blockIdx.x) >= S::units) return;
    const __nv_bfloat16* from =
        layer + M::template offset<s>() +
        size_t(blockIdx.x * S::slots * S::tiles * warps + threadIdx.x % 32) * 1024;
#pragma unroll 1
    for (int i = 0; i < S::slots * S::tiles; ++i, from += warps * 1024) {
      ask_one(from, policy);
      __syncwarp((1u << warps) - 1);
    }
  }
  __device__ void ask_one(const void* from, unsigned long long policy) {
    wait(empty + at * 8, phase ^ 1);
    if (under_way == window) {
      wait(full + oldest * 8, oldest_phase);
      if (++oldest == count) oldest = 0, oldest_phase ^= 1;
    } else {
      ++under_way;
    }
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full + at * 8),
                 "n"(slot_bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], "
        "%4;" ::"r"(slots + at * slot_bytes),
        "l"(from), "n"(slot_bytes), "r"(full + at * 8), "l"(policy)
        : "memory");
    move();
  }
  // Keys and values: eight tokens a slot.
  __device__ void ask_cached(const Args& a, int layer, unsigned long long policy) {
    const size_t base = (size_t(layer) * M::kv_heads + blockIdx.x / 16) * a.capacity * 128;
#pragma unroll 1
    for (int first = 0; first * 8 < a.context; first += warps * splits) {
      const int g = first + threadIdx.x % 32 * splits + blockIdx.x % splits;
      if (g * 8 < a.context) {
        ask_one(a.keys + base + size_t(g) * 1024, policy);
        ask_one(a.values + base + size_t(g) * 1024, policy);
      }
      __syncwarp((1u << warps) - 1);
    }
  }
  __device__ void ask_for(const Args& a) {
    if (threadIdx.x % 32 >= warps || dry) return;
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    const __nv_bfloat16* layer = a.weights;
#pragma unroll 1
    for (int l = 0; l < M::layers; ++l, layer += M::layer) {
      ask<0>(layer, policy);
      ask_cached(a, l, policy);
      ask<1>(layer, policy);
      ask<2>(layer, policy);
      ask<3>(layer, policy);
    }
  }
  __device__ unsigned arrived() const {
    if (!dry) wait(full + at * 8, phase);
    return slots + at * slot_bytes;
  }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + at * 8) : "memory");
    move();
  }
  // Reads a slot: of two steps of 32 columns, rows g and g + 8.
  __device__ void take(uint4 (&w)[4]) {
    const unsigned from = arrived() + threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[i].x), "=r"(w[i].y), "=r"(w[i].z), "=r"(w[i].w)
                   : "r"(from + i * 512));
    release();
  }
};

__device__ inline unsigned pack(float a, float b) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
// A warp that multiplies says that its sums are written; the warp that adds them up waits for all
// eight.
template <int s>
__device__ void sums_are_there() {
  asm volatile("bar.arrive %0, %1;" ::"n"(2 + s), "n"(threads + 32) : "memory");
}
template <int s>
__device__ void sums_are_wanted() {
  asm volatile("bar.sync %0, %1;" ::"n"(2 + s), "n"(threads + 32) : "memory");
}
__device__ inline void consumers_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}
__device__ inline void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                           unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Loads packets, and waits for those that are not of this layer yet.
template <int n>
__device__ void fetch(const Packet* from, int stride, unsigned epoch, Packet (&p)[n]) {
  bool all;
  do {
    all = true;
#pragma unroll
    for (int i = 0; i < n; ++i) p[i] = load_packet(from + i * stride);
#pragma unroll
    for (int i = 0; i < n; ++i) all = all && unsigned(p[i] >> 32) == epoch;
  } while (!all);
}

// Sums of a product's warps, [row][warp], and of the squares of its input behind them. Each product
// of a layer has its own, and its own barrier: a warp may be a product ahead of another one of its
// block, as it waits for its own part of the input alone.
template <class S>
using Sums = float[S::tiles * 16 + 1][warps];
template <class M>
struct AllSums {
  __align__(16) Sums<typename M::template Stage<0>> qkv;
  __align__(16) Sums<typename M::template Stage<1>> o;
  __align__(16) Sums<typename M::template Stage<2>> gate_up;
  __align__(16) Sums<typename M::template Stage<3>> down;
};

// Multiplies a warp's part of tiles by its part of the input, in shared memory. Slots come in
// batches, the first of which is in registers before the input is there.
template <class M, int tiles, int slots>
struct Multiply {
  static constexpr int all = tiles * slots, batch = all <= 6 ? all : slots <= 4 ? slots : 4;
  static_assert(all % batch == 0 && (batch % slots == 0 || slots % batch == 0));
  uint4 w[batch][4];

  __device__ __forceinline__ void take(Ring<M>& ring) {
#pragma unroll
    for (int i = 0; i < batch; ++i) ring.take(w[i]);
  }
  __device__ __forceinline__ void run(Ring<M>& ring, const char* x, float (*sums)[warps]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float c[2][4] = {};
    const auto end_of = [&](int tile) {
      if (lane % 4 == 0) {
        sums[tile * 16 + lane / 4][warp] = c[0][0] + c[1][0];
        sums[tile * 16 + lane / 4 + 8][warp] = c[0][2] + c[1][2];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) c[0][i] = c[1][i] = 0;
    };
#pragma unroll 1
    for (int first = 0; first < all; first += batch) {
      if (first > 0) take(ring);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const char* at =
            x + ((batch < slots ? first % slots : 0) + i % slots) * slot_k * 2 + lane % 4 * 16;
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          const uint4 v = *reinterpret_cast<const uint4*>(at + q * 64);
          mma(c[0], w[i][2 * q].x, w[i][2 * q + 1].x, w[i][2 * q].y, w[i][2 * q + 1].y, v.x, v.y);
          mma(c[1], w[i][2 * q].z, w[i][2 * q + 1].z, w[i][2 * q].w, w[i][2 * q + 1].w, v.z, v.w);
        }
        if (batch >= slots && i % slots == slots - 1) end_of(first / slots + i / slots);
      }
      if (batch < slots && (first + batch) % slots == 0) end_of(first / slots);
    }
  }
};

// What a warp keeps: its eighth of the hidden state, a lane's values 32 apart.
template <class M>
struct Kept {
  float h[M::hidden / warps / 32];
};

// Shared memory of attention.
struct AttentionShared {
  float sums[warps][2][128], largest[warps][2], total[warps][2];
  __nv_bfloat16 query[2][128];
  float key[128], value[128];  // of this token
};

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// A head of 128: a lane has 2l, 2l + 1, 2l + 64, 2l + 65; normed and turned.
__device__ inline void norm_and_turn(const float (&norm)[4], const float (&turns)[4],
                                     const Packet (&p)[2], float (&x)[4]) {
  x[0] = __uint_as_float(unsigned(p[0]) << 16),
  x[1] = __uint_as_float(unsigned(p[0]) & 0xffff0000u);
  x[2] = __uint_as_float(unsigned(p[1]) << 16),
  x[3] = __uint_as_float(unsigned(p[1]) & 0xffff0000u);
  float squares = x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(~0u, squares, d);
  const float factor = rsqrtf(squares / 128 + 1e-6f);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float low = x[i] * factor * norm[i], high = x[2 + i] * factor * norm[2 + i];
    const float c = turns[2 * i], s = turns[2 * i + 1];
    x[i] = low * c - high * s, x[2 + i] = high * c + low * s;
  }
}

template <class M>
__device__ void run_attention(const Args& a, Ring<M>& ring, int layer, unsigned epoch,
                              AttentionShared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.x % splits;
  const int kv_head = blockIdx.x / splits;
  const bool stamped = a.stamps && int(epoch) == a.stamped_layer;
  unsigned long long t0 = 0, t1 = 0, t2 = 0;
  if (stamped) t0 = global_time();
  constexpr float scale = 0.08838834764831845f * 1.4426950408889634f;
  float largest = -INFINITY, total = 0,
        acc[2][4] = {};  // largest, total: lanes 0 to 3 head 0, 4 to 7 head 1
  const bool appends = split == splits - 1;
  if (warp < 2 || (appends && warp == 2)) {
    float norm[4], turns[4], x[4];
    const float* from = (warp < 2 ? a.q_norm : a.k_norm) + 2 * lane;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      norm[i] = from[i / 2 * 64 + i % 2], turns[i] = a.turns[4 * lane + i];
    Packet p[2];
    fetch<2>(a.qkv + (warp < 2 ? kv_head * 2 + warp : M::heads + kv_head) * 64 + lane, 32, epoch,
             p);
    norm_and_turn(norm, turns, p, x);
    unsigned* to = reinterpret_cast<unsigned*>(
        warp < 2
            ? shared.query[warp]
            : a.keys + ((size_t(layer) * M::kv_heads + kv_head) * a.capacity + a.context) * 128);
    if (warp < 2) {
#pragma unroll
      for (float& v : x) v *= scale;
    } else {
      *reinterpret_cast<float2*>(shared.key + 2 * lane) = {x[0], x[1]};
      *reinterpret_cast<float2*>(shared.key + 64 + 2 * lane) = {x[2], x[3]};
    }
    to[lane] = pack(x[0], x[1]), to[lane + 32] = pack(x[2], x[3]);
  } else if (appends && warp == 3) {
    Packet p[2];
    fetch<2>(a.qkv + (M::heads + M::kv_heads + kv_head) * 64 + lane, 32, epoch, p);
    unsigned* to = reinterpret_cast<unsigned*>(
        a.values + ((size_t(layer) * M::kv_heads + kv_head) * a.capacity + a.context) * 128);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[lane + 32 * i] = unsigned(p[i]);
      *reinterpret_cast<float2*>(shared.value + 2 * lane + 64 * i) = {
          __uint_as_float(unsigned(p[i]) << 16), __uint_as_float(unsigned(p[i]) & 0xffff0000u)};
    }
  }
  consumers_meet();
  if (stamped) t1 = global_time();

  if (appends && warp == warps - 1) {  // this token
    const float4 key = *reinterpret_cast<const float4*>(shared.key + 4 * lane);
    const float4 value = *reinterpret_cast<const float4*>(shared.value + 4 * lane);
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      const uint2 x = *reinterpret_cast<const uint2*>(shared.query[head] + 4 * lane);
      float dot = __uint_as_float(x.x << 16) * key.x + __uint_as_float(x.x & 0xffff0000u) * key.y +
                  __uint_as_float(x.y << 16) * key.z + __uint_as_float(x.y & 0xffff0000u) * key.w;
#pragma unroll
      for (int d = 16; d > 0; d /= 2) dot += __shfl_xor_sync(~0u, dot, d);
      if (lane / 4 == head) largest = dot, total = lane % 4 == 0;
      acc[head][0] = value.x, acc[head][1] = value.y, acc[head][2] = value.z,
      acc[head][3] = value.w;
    }
  }
  uint4 q[4] = {};
  if (lane < 8) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      q[i] = *reinterpret_cast<const uint4*>(shared.query[lane / 4] + (i * 4 + lane % 4) * 8);
  }
  for (int g = warp * 16 + blockIdx.x % 16; g * 8 < a.context; g += warps * 16) {
    const unsigned keys = ring.arrived() + lane / 4 * 256 + lane % 4 * 16;
    uint4 k[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(k[i].x), "=r"(k[i].y), "=r"(k[i].z), "=r"(k[i].w)
                   : "r"(keys + i * 64));
    ring.release();
    float c[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      mma(c[0], q[i].x, 0, q[i].y, 0, k[i].x, k[i].y);
      mma(c[1], q[i].z, 0, q[i].w, 0, k[i].z, k[i].w);
    }
    float s[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      s[i] = g * 8 + lane % 4 * 2 + i < a.context ? c[0][i] + c[1][i] : -INFINITY;
    float top = fmaxf(s[0], s[1]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    top = fmaxf(top, largest);
    const float shrink = exp2_of(largest - top);
    largest = top;
    const float w[2] = {exp2_of(s[0] - top), exp2_of(s[1] - top)};
    total = total * shrink + w[0] + w[1];
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      const float f = __shfl_sync(~0u, shrink, head * 4);
#pragma unroll
      for (float& v : acc[head]) v *= f;
    }
    const unsigned values = ring.arrived() + lane * 8;
#pragma unroll
    for (int key = 0; key < 8; ++key) {
      unsigned v0, v1;
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(v0), "=r"(v1)
                   : "r"(values + key * 256));
      const float v[4] = {__uint_as_float(v0 << 16), __uint_as_float(v0 & 0xffff0000u),
                          __uint_as_float(v1 << 16), __uint_as_float(v1 & 0xffff0000u)};
#pragma unroll
      for (int head = 0; head < 2; ++head) {
        const float f = __shfl_sync(~0u, w[key % 2], head * 4 + key / 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[head][i] += f * v[i];
      }
    }
    ring.release();
  }
  total += __shfl_xor_sync(~0u, total, 1);
  total += __shfl_xor_sync(~0u, total, 2);
  if (lane < 8 && lane % 4 == 0)
    shared.largest[warp][lane / 4] = largest, shared.total[warp][lane / 4] = total;
#pragma unroll
  for (int head = 0; head < 2; ++head)
    *reinterpret_cast<float4*>(&shared.sums[warp][head][lane * 4]) =
        float4{acc[head][0], acc[head][1], acc[head][2], acc[head][3]};
  consumers_meet();
  if (stamped) t2 = global_time();
  // A warp adds up 32 values of the block's warps.
  constexpr int each = 256 + 4;
  const int head = warp / 4, dim = warp % 4 * 32 + lane;
  float top = -INFINITY, sum = 0, weight = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) top = fmaxf(top, shared.largest[w][head]);
  if (top > -INFINITY) {
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      const float f = exp2_of(shared.largest[w][head] - top);
      sum += f * shared.sums[w][head][dim], weight += f * shared.total[w][head];
    }
  }
  const Packet tag = Packet(epoch) << 32;
  Packet* mine = a.partial + (kv_head * splits + split) * each;
  store_packet(mine + threadIdx.x, tag | __float_as_uint(sum));
  if (lane == 0 && warp % 4 == 0) {
    store_packet(mine + 256 + head * 2, tag | __float_as_uint(top));
    store_packet(mine + 257 + head * 2, tag | __float_as_uint(weight));
  }
  if (stamped && threadIdx.x == 0) {
    unsigned long long* at = a.stamps + (size_t(4) * gridDim.x + blockIdx.x) * 4;
    at[0] = t0, at[1] = t1, at[2] = t2;
  }
}

// Joins sixteen values of all splits: a half of the lanes half of the splits. By one warp.
template <class M>
__device__ void finish_attention(const Args& a, unsigned epoch) {
  const int lane = threadIdx.x % 32, split = blockIdx.x % splits, kv_head = blockIdx.x / splits;
  constexpr int each = 256 + 4;
  const Packet tag = Packet(epoch) << 32;
  constexpr int half = splits / 2;
  const Packet* from = a.partial + (kv_head * splits + lane / 16 * half) * each;
  const int value = split * 16 + lane % 16;
  Packet p[3][half];
  bool all;
  do {
    all = true;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      p[0][i] = load_packet(from + i * each + value);
      p[1][i] = load_packet(from + i * each + 256 + split / 8 * 2);
      p[2][i] = load_packet(from + i * each + 257 + split / 8 * 2);
    }
#pragma unroll
    for (int i = 0; i < half; ++i)
#pragma unroll
      for (int j = 0; j < 3; ++j) all = all && unsigned(p[j][i] >> 32) == epoch;
  } while (!all);
  float most = -INFINITY, joined = 0, weights = 0;
#pragma unroll
  for (int i = 0; i < half; ++i) most = fmaxf(most, __uint_as_float(unsigned(p[1][i])));
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 16));
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const float f = exp2_of(__uint_as_float(unsigned(p[1][i])) - most);
    joined += f * __uint_as_float(unsigned(p[0][i])),
        weights += f * __uint_as_float(unsigned(p[2][i]));
  }
  joined += __shfl_xor_sync(~0u, joined, 16), weights += __shfl_xor_sync(~0u, weights, 16);
  const float y = joined / weights, next = __shfl_down_sync(~0u, y, 1);
  if (lane < 16 && lane % 2 == 0)
    store_packet(a.attention + (kv_head * 256 + value) / 2, tag | pack(y, next));
  if (a.stamps && int(epoch) == a.stamped_layer && lane == 0)
    a.stamps[(size_t(4) * gridDim.x + blockIdx.x) * 4 + 3] = global_time();
}

// A product, by the warps that multiply.
template <class M, int s>
__device__ void run_stage(const Args& a, Ring<M>& ring, Kept<M>& kept, unsigned epoch,
                          bool is_first, char* inputs, Sums<typename M::template Stage<s>>& sums) {
  using S = typename M::template Stage<s>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool stamped = a.stamps && int(epoch) == a.stamped_layer;
  unsigned long long t0 = 0, t1 = 0, t2 = 0;
  if (stamped) t0 = global_time();
  Multiply<M, S::tiles, S::slots> multiply;
  multiply.take(ring);

  // The warp's part of the input, as bfloat16 in its own shared memory.
  const int first_k = blockIdx.x % S::parts * S::part_k + warp * S::warp_k;
  char* mine = inputs + warp * (M::inter / warps * 2);
  float squares = 0;
  if constexpr (s == 0 || s == 2) {
    using From = typename M::template Stage<s == 0 ? 3 : 1>;
    constexpr int each = M::hidden / warps / 32;
    static_assert(S::parts == 1);
    if (s == 2 || !is_first) {
      Packet p[From::parts * each];
      const Packet* from = (s == 0 ? a.down : a.o) + first_k + lane;
      const unsigned expected = s == 0 ? epoch - 1 : epoch;
      bool all;
      do {
        all = true;
#pragma unroll
        for (int i = 0; i < From::parts * each; ++i)
          p[i] = load_packet(from + i / each * M::hidden + i % each * 32);
#pragma unroll
        for (const Packet& v : p) all = all && unsigned(v >> 32) == expected;
      } while (!all);
#pragma unroll
      for (int i = 0; i < From::parts * each; ++i)
        kept.h[i % each] += __uint_as_float(unsigned(p[i]));
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
      squares += kept.h[i] * kept.h[i];
      reinterpret_cast<__nv_bfloat16*>(mine)[lane + 32 * i] = __float2bfloat16(kept.h[i]);
    }
  } else {
    constexpr int each = S::warp_k / 2 / 32;
    Packet p[each];
    fetch<each>((s == 1 ? a.attention : a.act) + first_k / 2 + lane, 32, epoch, p);
#pragma unroll
    for (int i = 0; i < each; ++i)
      reinterpret_cast<unsigned*>(mine)[lane + 32 * i] = unsigned(p[i]);
  }
  __syncwarp();
  if (stamped) t1 = global_time();
  if constexpr (s == 0 || s == 2) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(~0u, squares, d);
    if (lane == 0) sums[S::tiles * 16][warp] = squares;
  }
  multiply.run(ring, mine, sums);
  if (stamped) t2 = global_time();
  sums_are_there<s>();
  if (stamped && threadIdx.x == 0) {
    unsigned long long* at = a.stamps + (size_t(s) * gridDim.x + blockIdx.x) * 4;
    at[0] = t0, at[1] = t1, at[2] = t2;
  }
}

// The end of a product, by one warp.
template <class M, int s>
__device__ void finish_stage(const Args& a, unsigned epoch,
                             const Sums<typename M::template Stage<s>>& sums) {
  using S = typename M::template Stage<s>;
  const int unit = blockIdx.x / S::parts, lane = threadIdx.x % 32;
  sums_are_wanted<s>();
  const auto sum_of = [&](int row) {
    const float4* v = reinterpret_cast<const float4*>(sums[row]);
    const float4 x = v[0], y = v[1];
    return ((x.x + x.y) + (x.z + x.w)) + ((y.x + y.y) + (y.z + y.w));
  };
  const Packet tag = Packet(epoch) << 32;
  float factor = 1;
  if constexpr (s == 0 || s == 2) factor = rsqrtf(sum_of(S::tiles * 16) / S::k + 1e-6f);
  if constexpr (s == 0) {
    for (int t = lane; t < S::tiles * 8; t += 32)
      store_packet(a.qkv + unit * S::tiles * 8 + t,
                   tag | pack(sum_of(2 * t) * factor, sum_of(2 * t + 1) * factor));
  } else if constexpr (s == 2) {  // a tile: eight rows of gate, eight of up
    for (int t = lane; t < S::tiles * 4; t += 32) {
      float y[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = t / 4 * 16 + t % 4 * 2 + i;
        const float g = sum_of(row) * factor, u = sum_of(row + 8) * factor;
        y[i] = g / (1 + __expf(-g)) * u;
      }
      store_packet(a.act + unit * S::tiles * 4 + t, tag | pack(y[0], y[1]));
    }
  } else {
    for (int t = lane; t < S::tiles * 16; t += 32)
      store_packet(
          (s == 1 ? a.o : a.down) + blockIdx.x % S::parts * M::hidden + unit * S::tiles * 16 + t,
          tag | __float_as_uint(sum_of(t)));
  }
  if (a.stamps && int(epoch) == a.stamped_layer && lane == 0)
    a.stamps[(size_t(s) * gridDim.x + blockIdx.x) * 4 + 3] = global_time();
}

extern __shared__ __align__(128) char shared[];

// Shared memory: the rings, and two inputs.
template <class M>
constexpr size_t input_bytes = std::max(M::inter, M::attention) * 2;
template <class M>
size_t shared_bytes(int slots) {
  return size_t(warps) * slots * (slot_bytes + 16) + 2 * input_bytes<M>;
}

template <class M>
__global__ void __launch_bounds__(threads + 64) all_layers(Args a, unsigned epoch, int slot_count) {
  Ring<M> ring(shared, slot_count, a.window, a.dry);
  __shared__ AttentionShared attention;
  __shared__ AllSums<M> sums;
  const int warp = threadIdx.x / 32;
  if (warp == warps) ring.set_up();
  __syncthreads();
  if (warp == warps) return ring.ask_for(a);
  if (warp > warps) {
#pragma unroll 1
    for (int i = 0; i < M::layers; ++i, ++epoch) {
      finish_stage<M, 0>(a, epoch, sums.qkv);
      finish_attention<M>(a, epoch);
      finish_stage<M, 1>(a, epoch, sums.o);
      finish_stage<M, 2>(a, epoch, sums.gate_up);
      finish_stage<M, 3>(a, epoch, sums.down);
    }
    return;
  }
  char* inputs = shared + warps * slot_count * (slot_bytes + 16);
  Kept<M> kept;
#pragma unroll
  for (int i = 0; i < M::hidden / warps / 32; ++i)
    kept.h[i] = __uint_as_float(
        unsigned(load_packet(a.h + warp * (M::hidden / warps) + threadIdx.x % 32 + 32 * i)));
#pragma unroll 1
  for (int i = 0; i < M::layers; ++i, ++epoch) {
    run_stage<M, 0>(a, ring, kept, epoch, i == 0, inputs, sums.qkv);
    run_attention<M>(a, ring, i, epoch, attention);
    run_stage<M, 1>(a, ring, kept, epoch, i == 0, inputs + input_bytes<M>, sums.o);
    run_stage<M, 2>(a, ring, kept, epoch, i == 0, inputs, sums.gate_up);
    run_stage<M, 3>(a, ring, kept, epoch, i == 0, inputs + input_bytes<M>, sums.down);
  }
}

static __global__ void reset(Args a, int hidden, float seed) {
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) {
    if (i < hidden) a.h[i] = __float_as_uint(__sinf(seed + i * 0.37f));
    a.o[i] = a.down[i] = a.qkv[i] = a.act[i] = a.attention[i] = 0;
    for (int j = i; j < 8 * splits * 260; j += 16384) a.partial[j] = 0;
  }
}

// One warp a row, sums in double.
template <class M, int s>
__global__ void reference(const __nv_bfloat16* weights, const float* h, const float* in,
                          float* out) {
  using S = typename M::template Stage<s>;
  const int outs = s == 2 ? M::inter : S::rows;
  for (int o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; o < outs;
       o += gridDim.x * (blockDim.x / 32)) {
    double sums[2] = {}, squares = 0;
    const int lane = threadIdx.x % 32, rows = s == 2 ? 2 : 1;
    for (int i = lane; i < S::k; i += 32) {
      const float x = __bfloat162float(__float2bfloat16(in[i]));
      squares += double(in[i]) * in[i];
      for (int r = 0; r < rows; ++r) {
        const int row = s == 2 ? o / 8 * 16 + o % 8 + 8 * r : o;
        sums[r] += double(__bfloat162float(weights[place_of<S>(row, i)])) * x;
      }
    }
    for (int d = 16; d > 0; d /= 2) {
      for (double& v : sums) v += __shfl_xor_sync(~0u, v, d);
      squares += __shfl_xor_sync(~0u, squares, d);
    }
    const double factor = s == 0 || s == 2 ? 1 / sqrt(squares / S::k + 1e-6) : 1;
    if (lane == 0) {
      if (s == 2) {
        const double g = sums[0] * factor;
        out[o] = __bfloat162float(__float2bfloat16(float(g / (1 + exp(-g)) * sums[1] * factor)));
      } else if (s == 0) {
        out[o] = __bfloat162float(__float2bfloat16(float(sums[0] * factor)));
      } else {
        out[o] = float(h[o] + sums[0]);
      }
    }
  }
}

// A block a head of queries.
template <class M>
__global__ void reference_attention(Args a, int layer, const float* qkv, float* out) {
  const int head = blockIdx.x, kv = head / 2, i = threadIdx.x;
  __shared__ double q[128], k[128];
  extern __shared__ __align__(128) char shared[];
  double* scores = reinterpret_cast<double*>(shared);
  const auto turned = [&](const float* x, const float* norm, double* to) {
    double squares = 0;
    for (int j = 0; j < 128; ++j) squares += double(x[j]) * x[j];
    const double factor = 1 / sqrt(squares / 128 + 1e-6);
    const int pair = i % 64;
    const double low = x[pair] * factor * norm[pair],
                 high = x[pair + 64] * factor * norm[pair + 64];
    const double c = a.turns[2 * pair], s = a.turns[2 * pair + 1];
    to[i] = i < 64 ? low * c - high * s : high * c + low * s;
  };
  turned(qkv + head * 128, a.q_norm, q);
  turned(qkv + (M::heads + kv) * 128, a.k_norm, k);
  __syncthreads();
  const size_t base = (size_t(layer) * M::kv_heads + kv) * a.capacity * 128;
  for (int t = i; t <= a.context; t += 128) {
    double dot = 0;
    for (int j = 0; j < 128; ++j)
      dot += q[j] *
             (t == a.context ? k[j] : double(__bfloat162float(a.keys[base + size_t(t) * 128 + j])));
    scores[t] = dot * 0.08838834764831845;
  }
  __syncthreads();
  double top = -1e300, sum = 0, value = 0;
  for (int t = 0; t <= a.context; ++t) top = fmax(top, scores[t]);
  for (int t = 0; t <= a.context; ++t) {
    const double w = exp(scores[t] - top);
    sum += w;
    value += w * (t == a.context ? double(qkv[(M::heads + M::kv_heads + kv) * 128 + i])
                                 : double(__bfloat162float(a.values[base + size_t(t) * 128 + i])));
  }
  out[head * 128 + i] = float(value / sum);
}

struct Bench : Gpu {
  Args a{};
  __nv_bfloat16* weights = nullptr;
  size_t elements = 0;
  double limit = 0;

  void set_up(size_t count) {
    open();
    elements = count;
    CHECK_CUDA(cudaMalloc(&weights, count * 2));
    fill(weights, count, 0.03f);
    a.weights = weights;
    for (Packet** p : {&a.h, &a.qkv, &a.act, &a.o, &a.down, &a.attention}) allocate(*p, 16384);
    allocate(a.partial, 8 * splits * 260);
    a.capacity = 20480 + 64;
    const size_t cached = size_t(28) * 8 * a.capacity * 128;
    allocate(a.keys, cached), allocate(a.values, cached);
    fill(a.keys, cached, 1.f);
    fill(a.values, cached, 1.f);
    float* constants;
    allocate(constants, 512);
    std::vector<float> v(512);
    for (int i = 0; i < 128; ++i)
      v[i] = 1 + 0.3f * std::sin(i * 1.3f), v[128 + i] = 1 + 0.3f * std::cos(i * 0.7f);
    for (int i = 0; i < 64; ++i)
      v[256 + 2 * i] = std::cos(i * 0.9f), v[257 + 2 * i] = std::sin(i * 0.9f);
    CHECK_CUDA(cudaMemcpy(constants, v.data(), 2048, cudaMemcpyHostToDevice));
    a.q_norm = constants, a.k_norm = constants + 128, a.turns = constants + 256;
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  // Random numbers up to a bound.
  void fill(__nv_bfloat16* data, size_t count, float bound) {
    fill_random<<<sms * 8, 256>>>(reinterpret_cast<bf16*>(data), count, bound, 0);
  }
  template <class K>
  void launch(K kernel, int blocks, size_t bytes, bool overlapped, auto... args) {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks, config.blockDim = threads + 64, config.dynamicSmemBytes = bytes,
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute, config.numAttrs = overlapped;
    CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, args...));
  }
  template <class M>
  void enqueue(int tokens, int slots) {
    reset<<<1, 1024, 0, stream>>>(a, M::hidden, 0.1f);
    for (int t = 0; t < tokens; ++t)
      launch(all_layers<M>, 128, shared_bytes<M>(slots), false, a, unsigned(1 + t * M::layers),
             slots);
  }
  std::vector<float> floats(const Packet* from, int count) {
    std::vector<Packet> p(count);
    CHECK_CUDA(cudaMemcpy(p.data(), from, p.size() * 8, cudaMemcpyDeviceToHost));
    std::vector<float> v;
    for (Packet x : p) {
      const unsigned w = unsigned(x);
      float f;
      std::memcpy(&f, &w, 4);
      v.push_back(f);
    }
    return v;
  }
  // What the last product added to the hidden state.
  template <class M>
  std::vector<float> last_sums() {
    constexpr int parts = M::template Stage<3>::parts;
    const std::vector<float> p = floats(a.down, M::hidden * parts);
    std::vector<float> v(M::hidden);
    for (size_t i = 0; i < p.size(); ++i) v[i % M::hidden] += p[i];
    return v;
  }
  template <class M>
  std::vector<float> truth() {
    float *h0, *h1, *qkv, *act, *mixed;
    allocate(h0, 8192), allocate(h1, 8192), allocate(qkv, 32768), allocate(act, 32768),
        allocate(mixed, 8192);
    prepare(reference_attention<M>);
    reset<<<1, 1024, 0, stream>>>(a, M::hidden, 0.1f);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<float> start = floats(a.h, M::hidden);
    CHECK_CUDA(cudaMemcpy(h0, start.data(), start.size() * 4, cudaMemcpyHostToDevice));
    for (int l = 0; l < M::layers; ++l) {
      const __nv_bfloat16* w = weights + size_t(l) * M::layer;
      reference<M, 0><<<sms * 8, 256>>>(w, nullptr, h0, qkv);
      reference_attention<M><<<M::heads, 128, (a.context + 1) * 8>>>(a, l, qkv, mixed);
      reference<M, 1><<<sms * 8, 256>>>(w + M::template offset<1>(), h0, mixed, h1);
      reference<M, 2><<<sms * 8, 256>>>(w + M::template offset<2>(), nullptr, h1, act);
      reference<M, 3><<<sms * 8, 256>>>(w + M::template offset<3>(), h1, act, h0);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    std::vector<float> after(M::hidden), before(M::hidden);
    CHECK_CUDA(cudaMemcpy(after.data(), h0, after.size() * 4, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(before.data(), h1, before.size() * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < M::hidden; ++i) after[i] -= before[i];
    return after;
  }
  double error(const std::vector<float>& v, const std::vector<float>& t) {
    double e = 0, n = 0;
    for (size_t i = 0; i < t.size(); ++i) e += (v[i] - t[i]) * (v[i] - t[i]), n += t[i] * t[i];
    return std::sqrt(e / n);
  }

  template <class M>
  void run(const char* name, int tokens, int most_slots) {
    prepare(all_layers<M>);
    for (int context : {128, 2048, 8192, 20480}) {
      a.context = context;
      const double bytes =
          (double(M::layer) * 2 + double(context) * M::kv_heads * 512) * M::layers * tokens;
      const double floor_us = bytes / limit * 1e6;
      const std::vector<float> expected = truth<M>();
      const auto report = [&](const char* how, int slots, double us) {
        std::printf(
            "{\"model\": \"%s\", \"context\": %d, \"how\": \"%s\", \"slots\": %d, \"window\": %d, "
            "\"us_a_layer\": %.2f, "
            "\"us\": %.1f, \"limit_us_a_layer\": %.2f, \"share\": %.3f, \"error\": %.2e}\n",
            name, context, how, slots, a.window, us / tokens / M::layers, us / tokens,
            floor_us / tokens / M::layers, floor_us / us, error(last_sums<M>(), expected));
        std::fflush(stdout);
      };
      for (a.window = 1; a.window < most_slots; a.window += a.window < 4 ? 1 : 3)
        report("one", most_slots, median_us([&] { enqueue<M>(tokens, most_slots); }));
      a.window = 2;
      stamps<M>(name, tokens, "one", most_slots);
      a.dry = 1;
      report("one, nothing read", most_slots, median_us([&] { enqueue<M>(tokens, most_slots); }));
      if (context == 128) stamps<M>(name, tokens, "one, nothing read", most_slots);
      a.dry = 0;
    }
  }

  // When blocks of the one launch wait, have their input, and are done, in one layer.
  template <class M>
  void stamps(const char* name, int tokens, const char* how, int slots) {
    allocate(a.stamps, size_t(5) * 128 * 4);
    a.stamped_layer = M::layers / 2 + M::layers * (tokens - 1);
    enqueue<M>(tokens, slots);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    std::vector<unsigned long long> s(size_t(5) * 128 * 4);
    CHECK_CUDA(cudaMemcpy(s.data(), a.stamps, s.size() * 8, cudaMemcpyDeviceToHost));
    unsigned long long zero = ~0ull;
    for (unsigned long long t : s)
      if (t) zero = std::min(zero, t);
    std::printf("{\"model\": \"%s\", \"how\": \"%s\", \"stamps_us\": [", name, how);
    for (int stage : {0, 4, 1, 2, 3})
      for (int point = 0; point < 4; ++point) {
        std::vector<double> v;
        for (int b = 0; b < 128; ++b)
          if (const auto t = s[(size_t(stage) * 128 + b) * 4 + point])
            v.push_back((t - zero) / 1e3);
        std::sort(v.begin(), v.end());
        const char* names[] = {"qkv", "o", "gate_up", "down", "attention"};
        const char* points[] = {"waits", "has input", "has sums", "done"};
        std::printf("%s{\"stage\": \"%s\", \"%s\": [%.2f, %.2f, %.2f]}", stage + point ? ", " : "",
                    names[stage], points[point], v.front(), v[v.size() / 2], v.back());
      }
    std::printf("]}\n");
    a.stamps = nullptr;
  }
};

}  // namespace ac::bench

int main() {
  using namespace ac::bench;
  Bench bench;
  using Small = Model<Product<1024, 4096, 1, 2>, Product<2048, 1024, 2, 1>,
                      Product<1024, 6144, 1, 3>, Product<3072, 1024, 2, 1>, 28>;
  using Middle = Model<Product<2048, 4096, 1, 2>, Product<2048, 2048, 1, 1>,
                       Product<2048, 12288, 1, 6>, Product<6144, 2048, 1, 1>, 28>;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bench.set_up(std::max(Small::layer * Small::layers, Middle::layer * Middle::layers));
  bench.limit = bench.streaming_limit(bench.weights, bench.elements * 2);
  std::printf("{\"limit_bytes_a_second\": %.4g, \"sms\": %d}\n", bench.limit, bench.sms);
  bench.run<Small>("Qwen3-0.6B", 4, 11);
  bench.run<Middle>("Qwen3-1.7B", 4, 10);
}
