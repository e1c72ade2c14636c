// How sums over some of the tokens (of one warp, of one split) become sums over all of them.
#pragma once

#include "kernels/attention_plan.h"
#include "kernels/math.cuh"
#include "kernels/ptx.cuh"

namespace ac::kernels {

// Sums over some of the tokens for two heads at two dimensions. Many such columns make a set: one
// 16-byte vector of maxima and sums for each pair of heads, then one of outputs for each column.
struct Column {
  float maximum[2] = {no_score, no_score}, sum[2] = {0, 0};
  float out[2][2] = {{0, 0}, {0, 0}};  // [dimension][head]

  AC_DEVICE float4 statistics() const {
    return make_float4(maximum[0], maximum[1], sum[0], sum[1]);
  }
  AC_DEVICE float4 outputs() const {
    return make_float4(out[0][0], out[0][1], out[1][0], out[1][1]);
  }
  // Other tokens' column.
  AC_DEVICE void add(const float4& statistics, const float4& outputs) {
    add_head(0, statistics.x, statistics.z, outputs.x, outputs.z);
    add_head(1, statistics.y, statistics.w, outputs.y, outputs.w);
  }
  AC_DEVICE void add_head(int head, float other_maximum, float other_sum, float low, float high) {
    const float both = fmaxf(maximum[head], other_maximum);
    const float mine = exp2f(maximum[head] - both), others = exp2f(other_maximum - both);
    maximum[head] = both;
    sum[head] = sum[head] * mine + other_sum * others;
    out[0][head] = out[0][head] * mine + low * others;
    out[1][head] = out[1][head] * mine + high * others;
  }
  // What the lane that many away has.
  AC_DEVICE void add_lane(int distance) {
    const auto other = [&](float v) { return __shfl_xor_sync(full_warp, v, distance); };
    const float4 a =
        make_float4(other(maximum[0]), other(maximum[1]), other(sum[0]), other(sum[1]));
    add(a, make_float4(other(out[0][0]), other(out[0][1]), other(out[1][0]), other(out[1][1])));
  }
};

// Adds up `count` sets of which load(i, vector) reads, and calls finish(column, total):
// neighbouring lanes share a column's sets, so that they are few in a row.
template <AttentionOp op, AttentionPlan plan, class Load, class Finish>
AC_DEVICE void add_up(int count, Load load, Finish finish) {
  constexpr int pairs = op.head_pairs(), columns = op.columns(), parts = plan.parts(op);
  for (int base = 0; base < columns; base += plan.threads / parts) {
    const int column = base + threadIdx.x / parts;
    const bool inside = column < columns;
    Column total;
    AC_UNROLL_BY(4)
    for (int i = threadIdx.x % parts; inside && i < count; i += parts)
      total.add(load(i, column % pairs), load(i, pairs + column));
    AC_UNROLL
    for (int lanes = 1; lanes < parts; lanes *= 2) total.add_lane(lanes);
    if (inside && threadIdx.x % parts == 0) finish(column, total);
  }
}

}  // namespace ac::kernels
