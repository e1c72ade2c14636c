// The RoPE and append kernel; rope_append_plan.h says what op, plan and parameters mean.
//
// A warp takes some heads of one token, several at once, so that loads are wide and in flight
// together, and angles are computed once. A lane holds both dimensions of a pair: nothing is
// exchanged but a norm's sum.
#pragma once

#include "kernels/math.cuh"
#include "kernels/rope_append_plan.h"
#include "kernels/row_codes.cuh"
#include "kernels/vectors.cuh"

namespace ac::kernels {

// Which lanes of a warp have which dimensions of which of its heads. A head is cut into chunks: of
// the dimensions that RoPE turns, then of the others. A chunk has two halves of `vector` dimensions
// that lie together; of the turned, these are pairs.
template <RopeAppendOp op, int vector>
struct HeldChunks {
  static constexpr bool possible = op.rotary % (2 * vector) == 0 && op.head_dim % (2 * vector) == 0;
  static constexpr int pairs = op.rotary / 2, turned = pairs / vector;
  static constexpr int all = turned + divide_up(op.head_dim - op.rotary, 2 * vector);
  static constexpr int lanes = all > 16 ? 32 : all > 8 ? 16 : all > 4 ? 8 : 4;  // of a head
  static constexpr int heads = 32 / lanes;                                      // of a warp at once
  static constexpr int count = divide_up(all, lanes);  // of a lane and a head

  AC_DEVICE static int chunk(int i) { return threadIdx.x % lanes + i * lanes; }
  AC_DEVICE static bool is_turned(int i) { return chunk(i) < turned; }
  // The first dimension of a half; head_dim or more: there is none.
  AC_DEVICE static int at(int i, int half) {
    const int c = chunk(i);
    if (c >= turned)
      return c < all ? op.rotary + (c - turned) * 2 * vector + half * vector : op.head_dim;
    return op.interleaved ? (2 * c + half) * vector : c * vector + half * pairs;
  }
};

// All lanes of a head come here, with what each has of it; `codes` may be null.
template <class T, class Held, int count, int vector>
AC_DEVICE void store_codes(const float (&values)[count][2][vector], e4m3* codes, float* scale_to,
                           int dim) {
  unsigned largest = 0;
  AC_UNROLL
  for (const auto& halves : values) AC_UNROLL
  for (const auto& half : halves) AC_UNROLL
  for (const float value : half) {
    const unsigned bits = magnitude_bits(to_float(from_float<T>(value)));
    if (bits > largest) largest = bits;
  }
  AC_UNROLL
  for (int lanes = Held::lanes / 2; lanes > 0; lanes /= 2) {
    const unsigned other = __shfl_xor_sync(full_warp, largest, lanes);
    if (other > largest) largest = other;
  }
  if (codes == nullptr) return;
  const float scale = row_scale(largest), inverse = inverse_scale(scale);
  AC_UNROLL
  for (int i = 0; i < count; ++i) AC_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int at = Held::at(i, half);
    if (at >= dim) continue;
    unsigned word = 0;
    AC_UNROLL
    for (int j = 0; j < vector; ++j) {
      const float value = to_float(from_float<T>(values[i][half][j]));
      word |= static_cast<unsigned>(nearest_e4m3(value * inverse).bits) << 8 * j;
    }
    if constexpr (vector == 4)
      *reinterpret_cast<unsigned*>(codes + at) = word;
    else
      codes[at] = {static_cast<unsigned char>(word)};
  }
  if (threadIdx.x % Held::lanes == 0) *scale_to = scale;
}

template <RopeAppendOp op, RopeAppendPlan plan, int vector>
AC_DEVICE void rope_append_by(const RopeAppendParams& p) {
  using T = Scalar<op.type>;
  using Held = HeldChunks<op, vector>;
  constexpr int dim = op.head_dim, count = Held::count;
  constexpr int heads = plan.heads_at_once(op), rounds = divide_up(heads, Held::heads);
  using Values = float[count][2][vector];

  struct Head {
    const T* in = nullptr;
    T* out = nullptr;       // null: not to be stored
    int norm = -1;          // 0: a query's, 1: a key's, -1: none, nor does RoPE turn it
    e4m3* codes = nullptr;  // not null: it is stored as these, and `scale`
    float* scale = nullptr;
    AC_DEVICE bool is_stored() const { return out != nullptr || codes != nullptr; }
  };
  const int before = load_fresh(p.position), per_token = p.heads + 2 * p.kv_heads;
  const auto find_head = [&](int token, int index) {
    Head head;
    if (index >= per_token) return head;
    if (index < p.heads) {
      head.in = static_cast<const T*>(p.q) + token * p.q_pitch + index * dim;
      head.out = static_cast<T*>(p.q_out) + (static_cast<long long>(token) * p.heads + index) * dim;
      head.norm = 0;
      return head;
    }
    const bool is_value = index >= p.heads + p.kv_heads;
    const int kv_head = index - p.heads - (is_value ? p.kv_heads : 0);
    const long long slot =
        static_cast<long long>(kv_head) * p.capacity + (before + token) % p.capacity;
    head.in = static_cast<const T*>(is_value ? p.v : p.k) + token * p.kv_pitch + kv_head * dim;
    if constexpr (op.fp8) {
      head.codes = static_cast<e4m3*>(is_value ? p.v_cache : p.k_cache) + slot * dim;
      head.scale = (is_value ? p.v_scales : p.k_scales) + slot;
    } else {
      head.out = static_cast<T*>(is_value ? p.v_cache : p.k_cache) + slot * dim;
    }
    head.norm = is_value ? -1 : 1;
    return head;
  };

  // Of queries and keys.
  Values factors[op.qk_norm ? 2 : 1] = {};
  if constexpr (op.qk_norm) {
    AC_UNROLL
    for (int which = 0; which < 2; ++which) AC_UNROLL
    for (int i = 0; i < count; ++i) AC_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto* const weight = static_cast<const T*>(which == 0 ? p.q_norm : p.k_norm);
      const int at = Held::at(i, half);
      if (at < dim) load_vector<Data::constant>(weight + at, factors[which][i][half]);
      AC_UNROLL
      for (float& factor : factors[which][i][half]) factor += p.norm_offset;
    }
  }

  const int groups = divide_up(per_token, heads), total = p.tokens * groups;
  for (int work = blockIdx.x * plan.warps() + threadIdx.x / 32; work < total;
       work += gridDim.x * plan.warps()) {
    const int token = work / groups, first = work % groups * heads;
    const auto head_of = [&](int round) {
      const int index = round * Held::heads + static_cast<int>(threadIdx.x % 32) / Held::lanes;
      return find_head(token, index < heads ? first + index : per_token);
    };
    Values values[rounds] = {};
    AC_UNROLL
    for (int r = 0; r < rounds; ++r) {
      const Head head = head_of(r);
      AC_UNROLL
      for (int i = 0; i < count; ++i) AC_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int at = Held::at(i, half);
        if (head.is_stored() && at < dim) load_vector(head.in + at, values[r][i][half]);
      }
    }
    float2 turns[count][vector];
    AC_UNROLL
    for (int i = 0; i < count; ++i) AC_UNROLL
    for (int j = 0; j < vector; ++j) {
      turns[i][j] = make_float2(1, 0);
      if (!Held::is_turned(i)) continue;
      turns[i][j] = math::cos_sin(static_cast<float>(before + token),
                                  p.inv_freq[Held::chunk(i) * vector + j]);
      turns[i][j].x *= p.rope_scale, turns[i][j].y *= p.rope_scale;
    }
    AC_UNROLL
    for (int r = 0; r < rounds; ++r) {
      const Head head = head_of(r);
      Values& value = values[r];
      if constexpr (op.qk_norm) {
        float squares = 0;
        AC_UNROLL
        for (const auto& halves : value) AC_UNROLL
        for (const auto& half : halves) AC_UNROLL
        for (const float v : half) squares += v * v;
        AC_UNROLL
        for (int lane = Held::lanes / 2; lane > 0; lane /= 2)
          squares += __shfl_xor_sync(full_warp, squares, lane);
        const float scale = rsqrtf(squares / dim + p.norm_eps);
        if (head.norm >= 0) {
          AC_UNROLL
          for (int i = 0; i < count; ++i) AC_UNROLL
          for (int half = 0; half < 2; ++half) AC_UNROLL
          for (int j = 0; j < vector; ++j)
            value[i][half][j] *=
                scale * (head.norm == 0 ? factors[0][i][half][j] : factors[1][i][half][j]);
        }
      }
      AC_UNROLL
      for (int i = 0; i < count; ++i) {
        if (Held::is_turned(i) && head.norm >= 0) {
          AC_UNROLL
          for (int j = 0; j < vector; ++j) {
            float& a = op.interleaved ? value[i][2 * j / vector][2 * j % vector] : value[i][0][j];
            float& b = op.interleaved ? value[i][(2 * j + 1) / vector][(2 * j + 1) % vector]
                                      : value[i][1][j];
            const float x = a, y = b;
            a = x * turns[i][j].x - y * turns[i][j].y;
            b = y * turns[i][j].x + x * turns[i][j].y;
          }
        }
        AC_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int at = Held::at(i, half);
          if (head.out != nullptr && at < dim) store_vector(head.out + at, value[i][half]);
        }
      }
      if constexpr (op.fp8) store_codes<T, Held, count, vector>(value, head.codes, head.scale, dim);
    }
  }
}

template <RopeAppendOp op, RopeAppendPlan plan>
AC_DEVICE void rope_append(const RopeAppendParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using T = Scalar<op.type>;
  launch_dependents();
  wait_for_dependency();
  if constexpr (HeldChunks<op, 4>::possible) {
    const auto is_whole = [](const void* at) { return is_aligned<4>(static_cast<const T*>(at)); };
    const bool are_whole = p.q_pitch % 4 == 0 && p.kv_pitch % 4 == 0 && is_whole(p.q) &&
                           is_whole(p.k) && is_whole(p.v);
    if (are_whole) return rope_append_by<op, plan, 4>(p);
  }
  rope_append_by<op, plan, 1>(p);
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_ROPE_APPEND_KERNEL(name, op, plan)                                                    \
  AC_KERNEL_ENTRY(name, ::ac::kernels::RopeAppendParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::rope_append<op, plan>(p))

}  // namespace ac::kernels
