// Compiled once for each op: AC_BENCH_PART 0 to 2 are matrix products, 3 and 4 attention.
#include "bench/gemm_bench.h"

#define AC_JOIN_(a, b) a##b
#define AC_JOIN(a, b) AC_JOIN_(a, b)

// The namespace of this part of the compilation.
#define AC_PART AC_JOIN(part_, AC_BENCH_PART)

namespace ac::bench {
namespace AC_PART {

#if AC_BENCH_PART < 3

#define AC_FILL_TABLE AC_JOIN(fill_gemm_table_, AC_BENCH_PART)
#define AC_KERNEL GemmKernel
constexpr GemmOp op = ops[AC_BENCH_PART];

// nvcc 13.0 cannot write host stubs for kernel templates over structs; numbers it can.
template <int plan>
__global__ void __launch_bounds__(mma_plans[plan].threads(), mma_plans[plan].resident)
    bench_mma_gemm(const __grid_constant__ GemmParams p) {
  mma_gemm<op, mma_plans[plan]>(p);
}
template <int plan>
__global__ void __launch_bounds__(plain_plans[plan].threads(), plain_plans[plan].blocks_per_sm())
    bench_gemm(const __grid_constant__ GemmParams p) {
  gemm<op, plain_plans[plan]>(p);
}

template <int plan>
__global__ void __cluster_dims__(tma_plans[plan].cluster(), 1, 1)
    __launch_bounds__(tma_plans[plan].threads(), 1)
        bench_tma_gemm(const __grid_constant__ TmaGemmParams p) {
  tma_gemm<op, tma_plans[plan]>(p);
}

template <int plan = 0>
static void fill_tma_table(TmaKernel* table) {
  if constexpr (tma_plans[plan].why_illegal(op) == nullptr) table[plan] = bench_tma_gemm<plan>;
  if constexpr (plan + 1 < tma_plan_count) fill_tma_table<plan + 1>(table);
}
template <int plan = 0>
static void fill_table(GemmKernel* table) {
  if constexpr (plan < mma_plan_count) {
    if constexpr (mma_plans[plan].why_illegal(op) == nullptr) table[plan] = bench_mma_gemm<plan>;
  } else {
    constexpr int plain = plan - mma_plan_count;
    if constexpr (plain_plans[plain].why_illegal(op) == nullptr) table[plan] = bench_gemm<plain>;
  }
  if constexpr (plan + 1 < first_tma_plan) fill_table<plan + 1>(table);
}

#else

#define AC_FILL_NUMBER(part) AC_JOIN(AC_FILL_NUMBER_, part)
#define AC_FILL_NUMBER_3 0
#define AC_FILL_NUMBER_4 1
#define AC_FILL_TABLE AC_JOIN(fill_attention_table_, AC_FILL_NUMBER(AC_BENCH_PART))
#define AC_KERNEL AttentionKernel
constexpr PrefillAttentionOp op = attention_ops[AC_BENCH_PART - 3];

template <int plan>
__global__ void __launch_bounds__(attention_plans[plan].threads(), attention_plans[plan].resident)
    bench_attention(const __grid_constant__ PrefillAttentionParams p) {
  prefill_attention<op, attention_plans[plan]>(p);
}

template <int plan = 0>
static void fill_table(AttentionKernel* table) {
  if constexpr (attention_plans[plan].why_illegal(op) == nullptr)
    table[plan] = bench_attention<plan>;
  if constexpr (plan + 1 < attention_plan_count) fill_table<plan + 1>(table);
}

#endif

}  // namespace AC_PART

#if AC_BENCH_PART < 3
void AC_FILL_TABLE(AC_KERNEL* table, TmaKernel* of_tma) {
  AC_PART::fill_table(table);
  AC_PART::fill_tma_table(of_tma);
}
#else
void AC_FILL_TABLE(AC_KERNEL* table) { AC_PART::fill_table(table); }
#endif

}  // namespace ac::bench
