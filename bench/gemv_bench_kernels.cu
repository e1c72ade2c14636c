// Compiled once for each site (AC_BENCH_SITE), so that two builds can run side by side.
#include "bench/gemv_bench.h"

#define AC_JOIN_(a, b) a##b
#define AC_JOIN(a, b) AC_JOIN_(a, b)

// The namespace of this part of the compilation.
#define AC_SITE AC_JOIN(site_, AC_BENCH_SITE)

namespace ac::bench {
namespace AC_SITE {

// nvcc 13.0 cannot write host stubs for kernel templates over structs; numbers it can.
template <int plan>
__global__ void __launch_bounds__(plans[plan].threads, plans[plan].blocks_per_sm())
    bench_gemv(const __grid_constant__ GemvParams p) {
  if constexpr (plans[plan].why_illegal(ops[AC_BENCH_SITE]) == nullptr)
    gemv<ops[AC_BENCH_SITE], plans[plan]>(p);
}

template <int plan = 0>
static void fill_table(Kernel* table) {
  if constexpr (plan < plan_count) {
    if constexpr (plans[plan].why_illegal(ops[AC_BENCH_SITE]) == nullptr)
      table[plan] = bench_gemv<plan>;
    fill_table<plan + 1>(table);
  }
}

}  // namespace AC_SITE

void AC_JOIN(fill_table_, AC_BENCH_SITE)(Kernel* table) { AC_SITE::fill_table(table); }

}  // namespace ac::bench
