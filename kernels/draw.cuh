// The kernels that draw a token; draw_plan.h says what op, plan and parameters mean.
#pragma once

#include "kernels/argmax.cuh"
#include "kernels/draw_plan.h"
#include "kernels/vectors.cuh"

namespace ac::kernels {

// How far below the largest logit, in units of the temperature; a NaN beside a NaN or an infinity.
AC_DEVICE float draw_distance(float largest, float logit, float temperature) {
  return (largest - logit) / temperature;
}
// Distances on their grid; draw_keys and more are too far.
AC_DEVICE unsigned draw_key(float distance) {
  if (!(distance < draw_range)) return draw_keys;
  return distance > 0 ? static_cast<unsigned>(distance * (draw_keys / draw_range)) : 0;
}
AC_DEVICE unsigned long long draw_mass(float distance) {
  return static_cast<unsigned long long>(expf(-distance) *
                                         static_cast<float>(1ull << draw_mass_bits));
}

// What another kernel, or the host, wrote.
template <class T>
AC_DEVICE T load_struct(const T* p) {
  static_assert(sizeof(T) % 8 == 0);
  unsigned long long words[sizeof(T) / 8];
  AC_UNROLL
  for (unsigned i = 0; i < sizeof(T) / 8; ++i)
    words[i] = load_fresh(reinterpret_cast<const unsigned long long*>(p) + i);
  T result;
  memcpy(&result, words, sizeof(T));
  return result;
}

// A place in a histogram: the first bin up to which there is as much as was sought.
struct DrawFound {
  unsigned bin;                    // draw_bins: there is less; the sums are of all bins then
  unsigned long long count, mass;  // of the bins before
  unsigned long long bin_mass;     // of the bin
};

template <int warps>
AC_DEVICE unsigned long long draw_scan(unsigned long long mine, unsigned long long* warp_sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned long long sum = mine;
  AC_UNROLL
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const unsigned long long other = __shfl_up_sync(full_warp, sum, lanes);
    if (lane >= lanes) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_sums[w];
  return sum;  // up to and with this thread's
}

// By one whole block: where the counts (or weights) of a histogram reach `wanted`.
template <DrawPlan plan>
AC_DEVICE DrawFound draw_find(const unsigned long long* bins, bool by_mass,
                              unsigned long long wanted) {
  constexpr int n = plan.bins_per_thread();
  AC_SHARED(unsigned long long, warp_counts, plan.warps());
  AC_SHARED(unsigned long long, warp_masses, plan.warps());
  AC_SHARED(DrawFound, found, 1);
  const unsigned first = threadIdx.x * n;
  unsigned long long counts[n], masses[n], count = 0, mass = 0;
  AC_UNROLL
  for (int i = 0; i < n; ++i) {
    counts[i] = load_fresh(bins + first + i);
    masses[i] = load_fresh(bins + draw_bins + first + i);
    count += counts[i], mass += masses[i];
  }
  unsigned long long count_end = draw_scan<plan.warps()>(count, warp_counts);
  unsigned long long mass_end = draw_scan<plan.warps()>(mass, warp_masses);
  const unsigned long long end = by_mass ? mass_end : count_end;
  const unsigned long long begin = end - (by_mass ? mass : count);
  const bool is_last = threadIdx.x == plan.threads - 1;
  if (begin < wanted && (wanted <= end || is_last)) {
    DrawFound here{draw_bins, count_end - count, mass_end - mass, 0};
    for (int i = 0; i < n && here.bin == draw_bins; ++i) {
      if (wanted <= (by_mass ? here.mass + masses[i] : here.count + counts[i])) {
        here.bin = first + i, here.bin_mass = masses[i];
      } else {
        here.count += counts[i], here.mass += masses[i];
      }
    }
    *found = here;
  }
  __syncthreads();
  const DrawFound result = *found;
  __syncthreads();  // all is free for the next search
  return result;
}

// By the block that comes last in a pass, all of it: what the next pass must know.
template <DrawPlan plan, DrawPass pass>
AC_DEVICE void draw_conclude(const DrawParams& p, const DrawSettings& settings) {
  const unsigned long long* const coarse = p.bins;
  const unsigned long long* const fine = p.bins + 2 * draw_bins;
  DrawState state{draw_bins, draw_bins, draw_keys - 1, 0, 0, 0, 0};
  // Weights that are left by top-k; 0 while that is not known.
  unsigned long long kept = 0;
  if constexpr (pass == DrawPass::coarse) {
    const unsigned long long k = settings.top_k > 0 ? settings.top_k : ~0ull;
    const DrawFound found = draw_find<plan>(coarse, false, k);
    if (found.bin == draw_bins)
      kept = found.mass;
    else
      state.k_bin = found.bin, state.k_count = static_cast<unsigned>(found.count),
      state.k_mass = found.mass;
  } else {
    state = load_struct(p.state);
    const bool by_k = pass == DrawPass::top_k;
    const DrawFound found = draw_find<plan>(
        fine, !by_k, by_k ? settings.top_k - state.k_count : state.target - state.p_mass);
    const unsigned bin = by_k ? state.k_bin : state.p_bin;
    if (found.bin < draw_bins) state.limit = min(state.limit, bin * draw_bins + found.bin);
    if (by_k) kept = state.k_mass + found.mass + found.bin_mass, state.k_bin = draw_bins;
  }
  if (kept > 0 && settings.top_p < 1) {
    state.target = static_cast<unsigned long long>(static_cast<double>(settings.top_p) *
                                                   static_cast<double>(kept));
    state.target = max(state.target, 1ull);
    const DrawFound found = draw_find<plan>(coarse, true, state.target);
    state.p_bin = found.bin, state.p_mass = found.mass;
  }
  if (threadIdx.x == 0) *p.state = state;
  if constexpr (pass != DrawPass::coarse)
    for (int i = threadIdx.x; i < 2 * draw_bins; i += plan.threads) p.bins[2 * draw_bins + i] = 0;
}

template <DrawOp op, DrawPlan plan>
AC_DEVICE void draw(const DrawParams& p) {
  static_assert(plan.why_illegal(op) == nullptr, "the plan is illegal for this op");
  constexpr int n = plan.vector();
  constexpr bool counts = op.pass != DrawPass::choose;
  launch_dependents();
  wait_for_dependency();
  const DrawSettings settings = load_struct(p.settings);
  const bool filters = settings.top_k > 0 || settings.top_p < 1;
  if (counts && !filters) return;
  DrawState state{draw_bins, draw_bins, draw_keys - 1, 0, 0, 0, 0};
  if (op.pass != DrawPass::coarse && filters) state = load_struct(p.state);
  if (op.pass == DrawPass::top_p)  // nobody reads the coarse histogram any more
    for (unsigned i = blockIdx.x * plan.threads + threadIdx.x; i < 2 * draw_bins;
         i += gridDim.x * plan.threads)
      p.bins[i] = 0;
  const unsigned refined = op.pass == DrawPass::top_k ? state.k_bin : state.p_bin;
  if ((op.pass == DrawPass::top_k || op.pass == DrawPass::top_p) && refined == draw_bins) return;

  const auto* const logits = static_cast<const Scalar<op.logits>*>(p.logits);
  const int likeliest = load_fresh(p.token);
  // A logit is not finite: no token has a probability, and what the greedy choice left says so.
  if (likeliest < 0) return;
  const float largest = to_float(load_fresh(logits + likeliest));
  const int first = static_cast<int>(blockIdx.x * plan.threads + threadIdx.x) * n;
  float v[n];
  load_some(logits + first, p.vocab - first, v);

  if constexpr (counts) {
    // Of weights the low and the high half, which sums of a block's do not overflow.
    constexpr int half = draw_mass_bits / 2;
    AC_SHARED(unsigned, block_bins, 3 * draw_bins);
    AC_SHARED(int, is_last, 1);
    for (int i = threadIdx.x; i < 3 * draw_bins; i += plan.threads) block_bins[i] = 0;
    __syncthreads();
    AC_UNROLL
    for (int e = 0; e < n; ++e) {
      if (first + e >= p.vocab) continue;
      const float distance = draw_distance(largest, v[e], settings.temperature);
      const unsigned key = draw_key(distance);
      unsigned bin = key / draw_bins;
      if (op.pass == DrawPass::coarse ? key >= draw_keys : bin != refined) continue;
      if (op.pass != DrawPass::coarse) bin = key % draw_bins;
      const unsigned long long mass = draw_mass(distance);
      atomicAdd(block_bins + bin, 1u);
      atomicAdd(block_bins + draw_bins + bin, static_cast<unsigned>(mass & ((1u << half) - 1)));
      atomicAdd(block_bins + 2 * draw_bins + bin, static_cast<unsigned>(mass >> half));
    }
    __syncthreads();
    unsigned long long* const bins = p.bins + (op.pass == DrawPass::coarse ? 0 : 2 * draw_bins);
    for (int i = threadIdx.x; i < draw_bins; i += plan.threads) {
      const unsigned count = block_bins[i];
      if (count == 0) continue;
      const unsigned long long high = block_bins[2 * draw_bins + i];
      atomicAdd(bins + i, static_cast<unsigned long long>(count));
      atomicAdd(bins + draw_bins + i, (high << half) + block_bins[draw_bins + i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) *is_last = count_block(p.finished_blocks, gridDim.x);
    __syncthreads();
    if (*is_last) draw_conclude<plan, op.pass>(p, settings);
  } else {
    const float farthest = settings.min_p > 0 ? -logf(settings.min_p) : draw_range;
    const unsigned long long stream = draw_stream(settings.seed, load_fresh(p.position) + p.tokens);
    unsigned long long best = 0;
    AC_UNROLL
    for (int e = 0; e < n; ++e) {
      if (first + e >= p.vocab) continue;
      const float distance = draw_distance(largest, v[e], settings.temperature);
      unsigned long long key = 0;
      if (draw_key(distance) <= state.limit && distance <= farthest) {
        const float uniform = static_cast<float>(draw_bits(stream, first + e)) *
                              (1.f / static_cast<float>(1ull << draw_random_bits));
        key = argmax_key(-distance - logf(-log1pf(-uniform)), first + e);
      }
      best = key > best ? key : best;
    }
    combine_argmax<plan.warps()>(best, p.block_best, p.finished_blocks, p.token);
  }
}

// Defines the kernel `name`. Put op and plan in parentheses if they hold commas.
#define AC_DRAW_KERNEL(name, op, plan)                                                     \
  AC_KERNEL_ENTRY(name, ::ac::kernels::DrawParams, (plan).threads, (plan).blocks_per_sm(), \
                  ::ac::kernels::draw<op, plan>(p))

}  // namespace ac::kernels
