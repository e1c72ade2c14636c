// The attention kernels of the decode benchmark.
#include "bench/gemv_bench.h"

namespace ac::bench {

template <int op, int plan>
static __global__ void __launch_bounds__(attention_plans[plan].threads,
                                         attention_plans[plan].blocks_per_sm())
    bench_attention(const __grid_constant__ AttentionParams p) {
  attention<attention_ops[op], attention_plans[plan]>(p);
}

template <int op, int plan = 0>
static void fill(AttentionKernel* table) {
  if constexpr (plan < attention_plan_count) {
    table[plan] = bench_attention<op, plan>;
    fill<op, plan + 1>(table);
  }
}

void fill_attention_table(AttentionKernel (*table)[attention_plan_count]) {
  fill<0>(table[0]), fill<1>(table[1]), fill<2>(table[2]);
}

}  // namespace ac::bench
