// Compiled once for each op: AC_BENCH_PART is its number.
#include "bench/prefill_bench.h"

#define AC_JOIN_(a, b) a##b
#define AC_JOIN(a, b) AC_JOIN_(a, b)
#define AC_PART AC_JOIN(part_, AC_BENCH_PART)

namespace ac::bench {
namespace AC_PART {

constexpr PrefillAttentionOp op = attentions[AC_BENCH_PART].op;

// nvcc 13.0 cannot write host stubs for kernel templates over structs; numbers it can.
template <int plan>
__global__ void __launch_bounds__(plans[plan].threads(), plans[plan].resident)
    bench_attention(const __grid_constant__ PrefillAttentionParams p) {
  prefill_attention<op, plans[plan]>(p);
}

template <int plan = 0>
static void fill_table(Kernel* table) {
  if constexpr (plans[plan].why_illegal(op, 227 * 1024) == nullptr)
    table[plan] = bench_attention<plan>;
  if constexpr (plan + 1 < plan_count) fill_table<plan + 1>(table);
}

}  // namespace AC_PART

void AC_JOIN(fill_prefill_table_, AC_BENCH_PART)(Kernel* table) { AC_PART::fill_table(table); }

}  // namespace ac::bench
