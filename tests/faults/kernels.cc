// The kernels of the cases that the compiler is asked for (-DAC_CASE_<name>), from whichever copy
// of the headers comes first in the include path.
#include "kernels/advance.cuh"
#include "kernels/attention.cuh"
#include "kernels/gemv.cuh"
#include "tests/faults/cases.h"

#define AC_GEMV_CASE(name)                                        \
  AC_GEMV_KERNEL(kernel_##name, ac::kernels::gemv_case(#name).op, \
                 ac::kernels::gemv_case(#name).plan)
#define AC_ATTENTION_CASE(name)                                             \
  AC_ATTENTION_KERNEL(kernel_##name, ac::kernels::attention_case(#name).op, \
                      ac::kernels::attention_case(#name).plan)

#define AC_ADVANCE_CASE(name) AC_ADVANCE_KERNEL(kernel_##name, ac::kernels::advance_case(#name).op)

#ifdef AC_CASE_swiglu
AC_GEMV_CASE(swiglu)
#endif
#ifdef AC_CASE_qkv
AC_GEMV_CASE(qkv)
#endif
#ifdef AC_CASE_projection
AC_GEMV_CASE(projection)
#endif
#ifdef AC_CASE_scaled
AC_GEMV_CASE(scaled)
#endif
#ifdef AC_CASE_head
AC_GEMV_CASE(head)
#endif
#ifdef AC_CASE_geglu
AC_GEMV_CASE(geglu)
#endif
#ifdef AC_CASE_geglu_erf
AC_GEMV_CASE(geglu_erf)
#endif
#ifdef AC_CASE_slow
AC_GEMV_CASE(slow)
#endif
#ifdef AC_CASE_plain
AC_GEMV_CASE(plain)
#endif
#ifdef AC_CASE_llama
AC_ATTENTION_CASE(llama)
#endif
#ifdef AC_CASE_qwen
AC_ATTENTION_CASE(qwen)
#endif
#ifdef AC_CASE_phi
AC_ATTENTION_CASE(phi)
#endif
#ifdef AC_CASE_interleaved
AC_ATTENTION_CASE(interleaved)
#endif
#ifdef AC_CASE_window
AC_ATTENTION_CASE(window)
#endif
#ifdef AC_CASE_full_window
AC_ATTENTION_CASE(full_window)
#endif
#ifdef AC_CASE_decode_end
AC_ADVANCE_CASE(decode_end)
#endif
#ifdef AC_CASE_prefill_end
AC_ADVANCE_CASE(prefill_end)
#endif
