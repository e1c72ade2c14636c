// The RoPE and append kernel; rope_append_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/head.cuh"
#include "kernels/math.cuh"
#include "kernels/rope_append_plan.h"

namespace ac::kernels {

template <RopeAppendOp op, RopeAppendPlan plan>
AC_DEVICE void rope_append(const RopeAppendParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  using T = Scalar<op.type>;
  constexpr int dim = op.head_dim;
  AC_DYNAMIC_SHARED(shared);
  float* const scratch = reinterpret_cast<float*>(shared) + threadIdx.x / 32 * dim;
  launch_dependents();
  wait_for_dependency();

  const int before = load_fresh(p.position), per_token = p.heads + 2 * p.kv_heads;
  const long long total = static_cast<long long>(p.tokens) * per_token;
  const long long stride = static_cast<long long>(gridDim.x) * plan.warps();
  for (long long i = static_cast<long long>(blockIdx.x) * plan.warps() + threadIdx.x / 32;
       i < total; i += stride) {
    const int token = static_cast<int>(i / per_token), head = static_cast<int>(i % per_token);
    const bool is_query = head < p.heads, is_value = head >= p.heads + p.kv_heads;
    const int kv_head = (head - p.heads) % p.kv_heads;
    const T* in;
    T* out;
    if (is_query) {
      in = static_cast<const T*>(p.q) + token * p.q_pitch + head * dim;
      out = static_cast<T*>(p.q_out) + (static_cast<long long>(token) * p.heads + head) * dim;
    } else {
      // A later token of this launch goes to the same slot.
      if (p.tokens - token > p.capacity) continue;
      in = static_cast<const T*>(is_value ? p.v : p.k) + token * p.kv_pitch + kv_head * dim;
      out = static_cast<T*>(is_value ? p.v_cache : p.k_cache) +
            (static_cast<long long>(kv_head) * p.capacity + (before + token) % p.capacity) * dim;
    }
    const T* norm_weight = nullptr;
    if (op.qk_norm && !is_value)
      norm_weight = static_cast<const T*>(is_query ? p.q_norm : p.k_norm);
    const float position = static_cast<float>(before + token);
    const auto rope = [&](int pair) {
      const float2 turn = math::cos_sin(position, p.inv_freq[pair]);
      return make_float2(turn.x * p.rope_scale, turn.y * p.rope_scale);
    };
    prepare_head<dim, op.rotary, op.interleaved>(in, norm_weight, p.norm_eps, p.norm_offset,
                                                 !is_value, rope, scratch, out);
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_ROPE_APPEND_KERNEL(name, op, plan)                                                    \
  AC_KERNEL_ENTRY(name, ::ac::kernels::RopeAppendParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::rope_append<op, plan>(p))

}  // namespace ac::kernels
