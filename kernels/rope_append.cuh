// The RoPE and append kernel; rope_append_plan.h says what op, plan and parameters mean.
//
// A warp takes some heads of one token, so that their loads are in flight together and angles are
// computed once. A lane holds both dimensions of a pair: nothing is exchanged but a norm's sum.
#pragma once

#include "kernels/math.cuh"
#include "kernels/ptx.cuh"
#include "kernels/rope_append_plan.h"

namespace ac::kernels {

// The dimensions of a head that a lane holds: those of its pairs, then those that do not turn.
template <RopeAppendOp op>
struct HeldDimensions {
  static constexpr int pairs = op.rotary / 2;
  static constexpr int turned = divide_up(pairs, 32);  // pairs of a lane
  static constexpr int count = 2 * turned + divide_up(op.head_dim - op.rotary, 32);

  AC_DEVICE static int pair(int i) { return threadIdx.x % 32 + i / 2 * 32; }
  // -1: none.
  AC_DEVICE static int at(int i) {
    if (i >= 2 * turned) {
      const int d = op.rotary + static_cast<int>(threadIdx.x % 32) + (i - 2 * turned) * 32;
      return d < op.head_dim ? d : -1;
    }
    if (pair(i) >= pairs) return -1;
    return op.interleaved ? 2 * pair(i) + i % 2 : pair(i) + i % 2 * pairs;
  }
};

template <RopeAppendOp op, RopeAppendPlan plan>
AC_DEVICE void rope_append(const RopeAppendParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using T = Scalar<op.type>;
  using Held = HeldDimensions<op>;
  constexpr int dim = op.head_dim, heads = plan.heads_at_once(op);
  launch_dependents();
  wait_for_dependency();

  struct Head {
    const T* in = nullptr;
    T* out = nullptr;  // null: not to be stored
    const T* norm_weight = nullptr;
    bool turns = false;
  };
  const int before = load_fresh(p.position), per_token = p.heads + 2 * p.kv_heads;
  const auto find_head = [&](int token, int index) {
    Head head;
    if (index >= per_token) return head;
    if (index < p.heads) {
      head.in = static_cast<const T*>(p.q) + token * p.q_pitch + index * dim;
      head.out = static_cast<T*>(p.q_out) + (static_cast<long long>(token) * p.heads + index) * dim;
      head.norm_weight = static_cast<const T*>(p.q_norm);
      head.turns = true;
      return head;
    }
    // A later token of this launch goes to the same slot.
    if (p.tokens - token > p.capacity) return head;
    const bool is_value = index >= p.heads + p.kv_heads;
    const int kv_head = index - p.heads - (is_value ? p.kv_heads : 0);
    const long long slot =
        static_cast<long long>(kv_head) * p.capacity + (before + token) % p.capacity;
    head.in = static_cast<const T*>(is_value ? p.v : p.k) + token * p.kv_pitch + kv_head * dim;
    head.out = static_cast<T*>(is_value ? p.v_cache : p.k_cache) + slot * dim;
    head.norm_weight = is_value ? nullptr : static_cast<const T*>(p.k_norm);
    head.turns = !is_value;
    return head;
  };

  const int groups = (per_token + heads - 1) / heads, total = p.tokens * groups;
  for (int work = blockIdx.x * plan.warps() + threadIdx.x / 32; work < total;
       work += gridDim.x * plan.warps()) {
    const int token = work / groups, first = work % groups * heads;
    float values[heads][Held::count];
    AC_UNROLL
    for (int h = 0; h < heads; ++h) {
      const Head head = find_head(token, first + h);
      AC_UNROLL
      for (int i = 0; i < Held::count; ++i) {
        const bool held = head.out != nullptr && Held::at(i) >= 0;
        values[h][i] = held ? to_float(load_fresh(head.in + Held::at(i))) : 0;
      }
    }
    float2 turns[Held::turned > 0 ? Held::turned : 1];
    AC_UNROLL
    for (int i = 0; i < Held::turned; ++i) {
      turns[i] = make_float2(1, 0);
      if (Held::pair(2 * i) >= Held::pairs) continue;
      turns[i] = math::cos_sin(static_cast<float>(before + token), p.inv_freq[Held::pair(2 * i)]);
      turns[i].x *= p.rope_scale, turns[i].y *= p.rope_scale;
    }
    AC_UNROLL
    for (int h = 0; h < heads; ++h) {
      const Head head = find_head(token, first + h);
      if (head.out == nullptr) continue;
      float(&value)[Held::count] = values[h];
      if (op.qk_norm && head.norm_weight != nullptr) {
        float squares = 0;
        AC_UNROLL
        for (const float v : value) squares += v * v;
        const float scale = rsqrtf(warp_sum(squares) / dim + p.norm_eps);
        AC_UNROLL
        for (int i = 0; i < Held::count; ++i)
          if (Held::at(i) >= 0)
            value[i] *=
                scale * (to_float(load_constant(head.norm_weight + Held::at(i))) + p.norm_offset);
      }
      if (head.turns) {
        AC_UNROLL
        for (int i = 0; i < Held::turned; ++i) {
          const float a = value[2 * i], b = value[2 * i + 1];
          value[2 * i] = a * turns[i].x - b * turns[i].y;
          value[2 * i + 1] = b * turns[i].x + a * turns[i].y;
        }
      }
      AC_UNROLL
      for (int i = 0; i < Held::count; ++i)
        if (Held::at(i) >= 0) head.out[Held::at(i)] = from_float<T>(value[i]);
    }
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_ROPE_APPEND_KERNEL(name, op, plan)                                                    \
  AC_KERNEL_ENTRY(name, ::ac::kernels::RopeAppendParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::rope_append<op, plan>(p))

}  // namespace ac::kernels
